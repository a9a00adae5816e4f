//! The binary as people and service managers meet it: real processes, real databases, real signals.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail loudly")]

mod again;
mod commands;
mod demo;
mod dev;
mod drain;
mod effects;
mod files;
mod gone;
mod grants;
mod idle;
mod ledger;
mod log;
mod pools;
mod reasons;
mod refusals;
mod rig;
mod secrets;
mod startup;
mod tls;
mod tools;
mod watch;
