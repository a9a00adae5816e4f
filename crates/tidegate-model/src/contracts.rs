//! Versioned contracts that travel between parties. Unknown fields are refused (R5.1, R6.2).

use serde::{Deserialize, Serialize};

use crate::{Capability, PoolId};

/// What a pool can do, published by a `pool_controller` and immutable once published (R5.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapabilityDescriptor {
    /// Always `capability-descriptor.v1`.
    pub contract: DescriptorContract,
    /// The pool it describes.
    pub pool_id: PoolId,
    /// Raised with every descriptor of the pool.
    pub descriptor_epoch: i64,
    /// What the pool's workers run, as they will show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_digest: Option<String>,
    /// What the pool offers.
    pub capabilities: Vec<Capability>,
}

crate::text_enum! {
    /// The version of a descriptor.
    pub enum DescriptorContract: "contract version" {
        /// The first version.
        V1 = "capability-descriptor.v1",
    }
}

/// What a run needs (R6.1). Requirements are stored once per digest, tenant included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRequirements {
    /// Always `TaskRequirements.v1`.
    pub contract: RequirementsContract,
    /// The trusted tenant, put in by the server.
    pub tenant: crate::TenantId,
    /// What the pool must offer.
    pub capability: Capability,
}

crate::text_enum! {
    /// The version of a requirement.
    pub enum RequirementsContract: "contract version" {
        /// The first version.
        V1 = "TaskRequirements.v1",
    }
}
