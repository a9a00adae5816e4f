//! The agent loop end to end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

mod asks;
mod effects;
mod endings;
#[path = "../../../tidegate-client/tests/fake/mod.rs"]
mod fake;
#[path = "../raw/mod.rs"]
mod raw;
mod rig;
#[path = "../support/mod.rs"]
mod support;
mod turns;
