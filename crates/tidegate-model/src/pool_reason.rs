//! Why a pool may not serve a requirement (R6.4).

use crate::text_enum;

text_enum! {
    /// The clauses that a pool can fail, in the order in which it is asked.
    pub enum PoolReason: "pool reason" {
        /// No descriptor of it is in force.
        DescriptorEpochStale = "DESCRIPTOR_EPOCH_STALE",
        /// Its descriptor is of a contract version that this release does not know.
        UnknownField = "UNKNOWN_FIELD",
        /// Its descriptor does not offer the capability.
        CapabilityMissing = "CAPABILITY_MISSING",
        /// It does not take the tenant's work.
        TenantIsolationMismatch = "TENANT_ISOLATION_MISMATCH",
        /// It may not see data of a class that is in the input.
        ClassificationDenied = "CLASSIFICATION_DENIED",
        /// It may run the work in a region that is not allowed, or names no region.
        RegionNotAllowed = "REGION_NOT_ALLOWED",
        /// Its sandbox is weaker than the floor.
        SandboxTooWeak = "SANDBOX_TOO_WEAK",
        /// It may not read something that is needed.
        ResourceScopeDenied = "RESOURCE_SCOPE_DENIED",
        /// It does not understand the input's version, or does not give the result's.
        SchemaIncompatible = "SCHEMA_INCOMPATIBLE",
        /// It has no tool of a name that is needed.
        ToolMissing = "TOOL_MISSING",
        /// It has a needed tool in other versions, or with another schema.
        ToolVersionMismatch = "TOOL_VERSION_MISMATCH",
        /// It lacks a runtime, or has it in other versions.
        RuntimeMismatch = "RUNTIME_MISMATCH",
        /// Its models have a smaller context, or do not take what is needed.
        ModelLimitExceeded = "MODEL_LIMIT_EXCEEDED",
        /// It was vetted under another policy generation than the one in force.
        PolicyGenerationStale = "POLICY_GENERATION_STALE",
        /// Its descriptor has expired.
        DescriptorExpired = "DESCRIPTOR_EXPIRED",
        /// It was not seen healthy lately.
        HealthEvidenceStale = "HEALTH_EVIDENCE_STALE",
        /// Of something that is taken there is less in all than is asked for.
        CapacityExceeded = "CAPACITY_EXCEEDED",
    }
}
