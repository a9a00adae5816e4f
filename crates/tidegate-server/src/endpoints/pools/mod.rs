//! Pools and their descriptors.

pub mod list_pools;
pub mod publish_descriptor;
pub mod set_epoch;
