//! Events of runs as they are read: one poller per instance for all streams, nudged by local writers (R4.6).

pub mod hub;
pub mod open;
pub mod tail;

pub use hub::EventHub;
