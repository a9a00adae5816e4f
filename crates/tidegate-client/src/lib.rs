//! The Rust SDK of Tidegate: a typed async client for every endpoint, event streams that resume by themselves, and a
//! worker loop that keeps its leases.
//!
//! Not done here: deciding anything. The client repeats what may be repeated and reports the rest; what a run may do is
//! the server's to say.
//!
//! Invariants:
//! * no call outlives its overall deadline (10 minutes unless set), however often it is repeated (R22.3, O-28);
//! * a write is repeated under the same `Idempotency-Key` only;
//! * an attempt stops by its own monotonic clock before its lease can expire elsewhere (R4.3);
//! * randomness and the wall clock are read in [`ambient`] only.

mod ambient;
mod calls;
mod client;
mod error;
mod events;
pub mod limits;
mod request;
mod retry;
mod setup;
pub mod worker;
mod worker_api;

pub use client::{Client, ClientBuilder};
pub use error::Error;
pub use events::RunEvents;
pub use retry::RetryPolicy;
pub use setup::SetupCause;
pub use worker_api::WorkerApi;

/// What a call gives back.
pub type Result<T> = std::result::Result<T, Error>;
