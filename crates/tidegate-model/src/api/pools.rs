//! Pools and their descriptors (R5).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{PoolId, api::WorkerView, contracts::CapabilityDescriptor, pool_reason::PoolReason};

/// `POST /v1/pools/{poolId}/epoch`: compare-and-set; an epoch is never lowered (R5.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetEpoch {
    /// The active epoch as the caller knows it; absent where none is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<i64>,
    /// A published epoch above it; or the same one, to change which others drain.
    pub active: i64,
    /// The epochs whose attempts may end what they have begun; those of all others are told to stop and go back to the queue.
    /// Unless given: those that drain already, and the one that was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<Vec<i64>>,
}

/// `POST /v1/pools/{poolId}/revoke`: takes an epoch away for good (R18.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevokeEpoch {
    /// A published epoch. Its attempts are told to stop and go back to the queue; where it is in force, the pool serves
    /// nothing until a higher one is.
    pub epoch: i64,
}

/// `POST /v1/admin/policy-generation`: compare-and-set; a generation is never lowered (R5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetPolicyGeneration {
    /// The generation in force as the caller knows it; 1 to begin with.
    pub expected: i64,
    /// A higher one. Descriptors of every other generation serve nothing from then on.
    pub active: i64,
}

/// The policy generation of the execution scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyGeneration {
    /// The one in force.
    pub active: i64,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// The pool.
    pub pool_id: PoolId,
    /// The epoch in force; absent until one is activated, and where it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_descriptor_epoch: Option<i64>,
    /// The descriptor in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<CapabilityDescriptor>,
    /// Why it serves nothing now, whatever is asked for; empty where it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed_by: Vec<PoolReason>,
    /// Epochs whose attempts may end what they have begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining_epochs: Vec<i64>,
    /// Epochs that nothing may use again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked_epochs: Vec<i64>,
    /// Every published epoch with its digest.
    pub epochs: Vec<DescriptorEpochView>,
    /// Leases held by its workers.
    pub running: i64,
    /// The workers that have registered and were heard of in the last two minutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerView>,
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
