//! What tests stand on: a private PostgreSQL and Redis per test process, a fresh database per
//! test, certificates, a fault proxy, and real processes to kill.
//!
//! Each piece is the real thing, started from the machine's binaries (`make setup` installs what
//! is missing); a missing program fails the test with the command that installs it, and nothing
//! is skipped. Not done here: mocking of our own crates.
//!
//! Invariants:
//! * two test runs at once on one machine do not meet: sockets live in private directories, ports
//!   are free ones;
//! * nothing is left behind, whether a test passes, panics, or its process is killed: servers are
//!   tied to the process (`tidegate_embedded::tied`) and directories are removed by [`scratch`];
//! * failures are panics with the cause, so that a test needs no error handling for its rig.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a rig that does not stand fails the test that asked for it"
)]

use tidegate_model::contracts::Health;

pub mod audit;
pub mod log;
pub mod pg;
pub mod proc;
pub mod proxy;
mod recovery;
pub mod redis;
pub mod scratch;
pub mod tls;
pub mod tls_front;

pub use audit::audit;
pub use pg::{TestCluster, TestDb};
pub use proc::{Proc, Running};
pub use proxy::{Proxy, Target, Way};
pub use redis::TestRedis;
pub use tidegate_embedded as embedded;
pub use tls::{Authority, ServerCertificate};
pub use tls_front::{Handshake, TlsFront};

/// A seed for a test that draws: `TIDEGATE_TEST_SEED`, else a new one; printed, so that a failure can be repeated.
#[expect(clippy::print_stdout, reason = "a failing test must show its seed")]
pub fn seed() -> u64 {
    let seed = std::env::var("TIDEGATE_TEST_SEED").map_or_else(
        |_| {
            use std::hash::{BuildHasher as _, RandomState};
            RandomState::new().hash_one(0)
        },
        |text| text.parse().expect("TIDEGATE_TEST_SEED is a number"),
    );
    println!("TIDEGATE_TEST_SEED={seed}");
    seed
}

/// Evidence of health that outlasts every test.
pub fn lasting_health() -> Health {
    let at = |seconds| chrono::DateTime::from_timestamp(seconds, 0).expect("a time");
    Health {
        checked_at: at(1_767_225_600),
        valid_until: at(32_503_680_000),
    }
}
