//! Why a run waits and where it is, against a real PostgreSQL.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

#[path = "why/admissions.rs"]
mod admissions;
#[path = "why/bulk.rs"]
mod bulk;
#[path = "why/combined.rs"]
mod combined;
#[path = "why/endings.rs"]
mod endings;
#[path = "why/events.rs"]
mod events;
#[path = "why/fair.rs"]
mod fair;
#[path = "why/grants.rs"]
mod grants;
#[path = "why/ledger.rs"]
mod ledger;
#[path = "why/lists.rs"]
mod lists;
#[path = "why/order.rs"]
mod order;
#[path = "why/phases.rs"]
mod phases;
#[path = "why/reasons.rs"]
mod reasons;
#[path = "why/retention.rs"]
mod retention;
#[path = "why/rig.rs"]
mod rig;
#[path = "why/routing.rs"]
mod routing;
#[path = "why/schedules.rs"]
mod schedules;
#[path = "why/tree.rs"]
mod tree;
#[path = "why/waits.rs"]
mod waits;
