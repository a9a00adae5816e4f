//! Pools and their descriptors (R5).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{PoolId, contracts::CapabilityDescriptor};

/// `POST /v1/pools/{poolId}/epoch`: compare-and-set; an epoch is never lowered (R5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetEpoch {
    /// The active epoch as the caller knows it; absent where none is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<i64>,
    /// A published epoch above it.
    pub active: i64,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// The pool.
    pub pool_id: PoolId,
    /// The epoch in force; absent until one is activated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_descriptor_epoch: Option<i64>,
    /// The descriptor in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<CapabilityDescriptor>,
    /// Every published epoch with its digest.
    pub epochs: Vec<DescriptorEpochView>,
    /// Leases held by its workers.
    pub running: i64,
}

/// A published descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DescriptorEpochView {
    /// Its epoch.
    pub epoch: i64,
    /// The digest of its canonical JSON.
    pub digest: String,
    /// When it was published.
    pub published_at: DateTime<Utc>,
}
