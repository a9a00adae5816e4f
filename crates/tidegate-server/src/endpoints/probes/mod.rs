//! Probes, contract and metrics.

pub mod grant_keys;
pub mod livez;
pub mod metrics;
pub mod openapi_json;
pub mod readyz;
