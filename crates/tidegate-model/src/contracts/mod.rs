//! Versioned contracts that travel between parties. Unknown fields are refused (R5.1, R6.2).

mod descriptor;
mod grant;
mod names;
mod needs;
mod resource;

pub use descriptor::{
    CapabilityDescriptor, DescriptorContract, Health, ModelLimits, QualityGate, RuntimeOffer,
    SchemaRange, ToolOffer,
};
pub use grant::{
    AdmissionGrant, CallLease, GrantAlgorithm, GrantId, GrantKeyId, GrantToken, GrantedAmount,
    PublishedGrantKey,
};
pub use names::{
    InvalidIsolation, InvalidVersion, Isolation, Label, Modality, Region, ResourceScope,
    RuntimeName, Sandbox, ToolName, Version, Versions,
};
pub use needs::{ModelNeed, Needs, RequirementsContract, RuntimeNeed, TaskRequirements, ToolNeed};
pub use resource::{Estimates, ResourceKind, ResourceName, ResourceNeed, TenantMeasure};
