//! The rig keeps its own promises.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod databases;
mod processes;
mod proxies;
mod recovered;
mod servers;
