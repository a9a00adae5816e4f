//! Runs as their tenant handles them.

pub mod accept;
pub mod bulk;
pub mod cancel;
pub mod requeue;
pub mod submit;
