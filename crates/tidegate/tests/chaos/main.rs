//! Real servers on a real database, killed, frozen and cut off from it. Each test has its own servers; they run one at a
//! time (`make chaos`). Times are scaled: leases last seconds where they last half a minute in production.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod caps;
mod database;
mod effects;
mod frozen;
mod killed;
mod rig;
mod shares;
mod soak;
