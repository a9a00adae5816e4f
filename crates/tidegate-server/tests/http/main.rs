//! The HTTP edge over real sockets and a real database.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod admissions;
mod answers;
mod attempts;
mod audited;
mod bad_input;
mod connections;
mod contract;
mod conversations;
mod database;
mod drain;
mod effects;
mod grant_keys;
mod grants;
mod isolation;
mod logs;
mod probes;
mod repeats;
mod rig;
mod roles;
mod stalled;
mod streams;
mod tiers;
mod tls;
mod turns;
mod worker;
