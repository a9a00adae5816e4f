//! Probes, contract and metrics.

pub mod livez;
pub mod metrics;
pub mod openapi_json;
pub mod readyz;
