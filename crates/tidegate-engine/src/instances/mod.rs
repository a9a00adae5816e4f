//! This process among the others.

pub mod heartbeat;
