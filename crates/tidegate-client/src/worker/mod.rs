//! A worker that keeps its leases (R4, O-02).
//!
//! [`WorkerLoop`] claims runs, hands each to a [`Handler`], renews all leases together in a task of its own, and stops
//! an attempt that it can no longer prove to hold. The executor inside the server uses this same loop.
//!
//! Not done here: deciding what may run, and retrying an attempt; both are the server's.
//!
//! Invariants:
//! * an attempt's validity counts from the moment its last accepted renewal was *sent*, on the monotonic clock, and an
//!   attempt past it is dropped and writes nothing (R4.3);
//! * work begins only with at least half of the lease left, else the lease is renewed first (R4.1);
//! * every claimed run is reported exactly once, or its lease is lost.
//!
//! Handlers run on the runtime's threads. One that blocks its thread for long should be moved away from the renewals
//! with [`WorkerLoop::handlers_on`] or `spawn_blocking`.

mod attempt;
mod effects;
mod events;
mod held;
mod outcome;
mod renewal;
mod run;

pub use attempt::{Job, NewChild};
pub use events::EventWriter;
pub use held::{Stop, StopSignal};
pub use outcome::{Failure, Outcome, UsageMeter, WaitFor};
pub use run::{Handler, WorkerLoop, WorkerSettings};
