//! What benchmarks stand on: a durable PostgreSQL of their own, CPU accounts from `/proc`, drivers of ourselves and of
//! what we are compared with.
//!
//! A driver runs as a process of its own, so that its CPU is its own too, and prints one line of JSON; the program that
//! compares starts it, reads the server's account around it, and takes medians over rounds in which all take turns.
//! Not done here: anything that ships.
//!
//! Invariants: PostgreSQL is durable (`fsync` and `synchronous_commit` on) and the same for everybody; every
//! measurement has a fresh database; what could not be measured is named in the output.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark that cannot go on stops and says why; its output is its purpose"
)]

pub mod accounts;
pub mod drivers;
pub mod postgres;
pub mod process;
pub mod report;
