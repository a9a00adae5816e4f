//! Tests of the private PostgreSQL against the machine's real binaries.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests fail loudly")]

mod cluster;
mod owner;
mod rig;
