//! The HTTP edge over real sockets and a real database.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod audited;
mod bad_input;
mod connections;
mod contract;
mod database;
mod drain;
mod effects;
mod isolation;
mod logs;
mod probes;
mod rig;
mod roles;
mod streams;
mod tls;
mod worker;
