//! Grants from the outside: what is signed is what is read, narrowing only narrows, and nothing else passes.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod foreign;
mod narrowing;
mod problems;
mod rig;
mod tampering;
