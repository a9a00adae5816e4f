//! Reads for people and callers: runs with their derived state, lists, what explains a run, event streams.
//!
//! The state of a run is derived: ended, else leased, else parked, else queued. Nothing here writes; a run that moves
//! between two statements of one read is read again.

pub mod events;
pub mod explain;
pub mod list;
mod queued;
pub mod runs;
pub mod tree;
