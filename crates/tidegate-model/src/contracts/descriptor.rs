//! `capability-descriptor.v1`: what a pool can do, as a fact that can be checked (R5.1).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::names::{
    Isolation, Label, Modality, Region, ResourceScope, RuntimeName, Sandbox, ToolName, Version,
    Versions,
};
use crate::{Capability, PoolId, digest::Digest};

/// What a pool can do, published by a `pool_controller` and immutable once published (R5.1). What is not named is not there.
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
    /// What the pool's workers run, as they have to show it when they register (R5.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_digest: Option<String>,
    /// What the pool offers.
    pub capabilities: Vec<Capability>,
    /// Which versions of inputs it understands and of results it gives; a capability that stands in no entry has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemas: Vec<SchemaRange>,
    /// The tools that its work may use; several versions of one are several entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolOffer>,
    /// What runs there, such as a browser or an interpreter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<RuntimeOffer>,
    /// What its work may read, such as repositories and data sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_scopes: Vec<ResourceScope>,
    /// The classes of data that it may see. Work with a label that is not here does not come here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// Whose work it takes: `shared` unless given, `dedicated:acme` or `allow:[acme,globex]`.
    #[serde(default, skip_serializing_if = "Isolation::is_shared")]
    pub isolation: Isolation,
    /// Every region in which its work may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<Region>,
    /// The limits of the models that it uses; none unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelLimits>,
    /// How strictly work is kept apart from the machine; `none` unless given.
    #[serde(default, skip_serializing_if = "Sandbox::is_none")]
    pub sandbox: Sandbox,
    /// The policy generation under which it was vetted; it serves under that one only (R5.3).
    pub policy_generation: i64,
    /// That it was seen healthy, and until when this counts.
    pub health: Health,
    /// Checks of quality that it has passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quality_gates: Vec<QualityGate>,
    /// It serves nothing new from then on.
    pub expires_at: DateTime<Utc>,
}

impl CapabilityDescriptor {
    /// A descriptor that says no more than what a pool offers, vetted under the first policy generation, for as long as its
    /// evidence of health counts.
    pub const fn new(
        pool_id: PoolId,
        descriptor_epoch: i64,
        capabilities: Vec<Capability>,
        health: Health,
    ) -> Self {
        Self {
            contract: DescriptorContract::V1,
            pool_id,
            descriptor_epoch,
            runtime_digest: None,
            capabilities,
            schemas: Vec::new(),
            tools: Vec::new(),
            runtimes: Vec::new(),
            resource_scopes: Vec::new(),
            labels: Vec::new(),
            isolation: Isolation::Shared,
            regions: Vec::new(),
            model: None,
            sandbox: Sandbox::None,
            policy_generation: 1,
            health,
            quality_gates: Vec::new(),
            expires_at: health.valid_until,
        }
    }

    /// The same descriptor in the one order that its digest is made of: its lists are sets.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.capabilities.sort();
        self.labels.sort();
        self.regions.sort();
        self.resource_scopes.sort();
        if let Some(model) = &mut self.model {
            model.modalities.sort();
        }
        self.schemas.sort_by_cached_key(|range| {
            let (task, result) = (range.task.to_string(), range.result.to_string());
            (range.capability.clone(), task, result)
        });
        self.tools
            .sort_by_cached_key(|tool| (tool.name.clone(), tool.version.to_string()));
        self.runtimes
            .sort_by_cached_key(|runtime| (runtime.name.clone(), runtime.version.to_string()));
        self.quality_gates
            .sort_by_cached_key(|gate| gate.capability.clone());
        self
    }
}

crate::text_enum! {
    /// The version of a descriptor.
    pub enum DescriptorContract: "contract version" {
        /// The first version.
        V1 = "capability-descriptor.v1",
    }
}

/// Versions of a capability's input and result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchemaRange {
    /// Of which capability.
    pub capability: Capability,
    /// Inputs that are understood.
    pub task: Versions,
    /// Results that are given.
    pub result: Versions,
}

/// A tool in one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolOffer {
    /// Its name, `domain/name`.
    pub name: ToolName,
    /// Its version.
    pub version: Version,
    /// The digest of its argument schema's canonical JSON.
    pub schema_digest: Digest,
}

/// A runtime in one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuntimeOffer {
    /// Its name.
    pub name: RuntimeName,
    /// Its version.
    pub version: Version,
}

/// What the pool's models take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelLimits {
    /// The largest context, in tokens.
    pub context_tokens: i64,
    /// What they take.
    pub modalities: Vec<Modality>,
}

/// Evidence of health, as its publisher has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Health {
    /// When it was checked.
    pub checked_at: DateTime<Utc>,
    /// Until when that counts.
    pub valid_until: DateTime<Utc>,
}

/// A check of quality that the pool has passed for a capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QualityGate {
    /// For which capability.
    pub capability: Capability,
    /// When it was passed.
    pub passed_at: DateTime<Utc>,
    /// Until when that counts.
    pub valid_until: DateTime<Utc>,
}
