//! tidegate-policy
pub mod limiter;
