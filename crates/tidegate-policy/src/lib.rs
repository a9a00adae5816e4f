//! tidegate-policy
pub mod buckets;
pub mod fairness;
pub mod limiter;
