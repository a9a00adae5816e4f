//! The reservation ledger (R7): what is asked of it, whether it fits, and how one admission lives.
//!
//! The store hands in counters as they stand under the ledger's lock, applies the changes that come out, and never
//! decides: a batch is one [`book::Book`], in which each admission sees what those before it took and gave back.

pub mod book;
pub mod demand;
pub mod life;

pub use book::{Book, Counter, Overflow, Part, Shortage, Vector};
pub use demand::{Demand, demands};
pub use life::{Held, Refusal};
