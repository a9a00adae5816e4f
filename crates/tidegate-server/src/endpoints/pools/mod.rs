//! Pools and their descriptors.

pub mod list_pools;
pub mod publish_descriptor;
pub mod revoke_epoch;
pub mod set_epoch;
