//! Signing, narrowing and checking what an admission grants (R9.1, R9.2).
//!
//! A grant is a biscuit: one block of facts that Tidegate signs, and any number of blocks that narrow it, which whoever
//! holds it adds without asking anybody. What may stand in a block is a short list of words ([`words`]); a token with
//! anything else in it is refused, whoever signed it. So the words can be read into types and decided here in plain Rust,
//! with a problem of its own for each way to fail, while other languages check the same token with their biscuit library
//! and get the same verdict; a test lets both decide the same.
//!
//! Not done here: no clock, no randomness, no I/O, no memory of what was verified. Times, the entropy of the keys between
//! blocks, and the published keys are handed in.
//!
//! Invariants: a block can only narrow; what does not read back to the same bytes is refused; nothing here prints a token.

mod limits;
mod problem;
mod read;
mod sign;
mod terms;
mod verify;
pub mod words;

pub use limits::{BLOCKS_MAX, CALL_LEASE_MAX_SECONDS, GRANTS_MAX, TOKEN_MAX_BYTES};
pub use problem::{FenceOf, GrantProblem, KeyProblem, SignProblem};
pub use sign::{Entropy, SignedGrant, Signer, call_terms};
pub use terms::{CallTerms, Demand};
pub use verify::{BlockId, Bound, Claims, Verified, Verifier, read_unverified};
