//! Grants from the outside: what is signed is what is read, narrowing only narrows, and nothing else passes.

mod foreign;
mod narrowing;
mod problems;
mod rig;
mod tampering;
