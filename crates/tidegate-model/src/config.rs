//! What an administrative write can be about (R17).

use crate::text_enum;

text_enum! {
    /// The kind of a config revision; an instance drops the caches that a kind concerns.
    pub enum ConfigKind: "config kind" {
        /// A tenant was made, suspended, resumed or deleted.
        Tenant = "tenant",
        /// An API key was made or revoked.
        Key = "key",
        /// A model provider changed.
        Provider = "provider",
        /// A model changed.
        Model = "model",
        /// A tool server changed.
        ToolServer = "tool_server",
        /// What a tenant may have changed: its tier or its override.
        Tier = "tier",
        /// A descriptor was published or an epoch moved.
        Pool = "pool",
        /// A resource of the ledger was made, changed or removed.
        Resource = "resource",
        /// A key of grants was replaced.
        GrantKey = "grant_key",
        /// The database came from another history, or its secrets were sealed anew.
        Cluster = "cluster",
    }
}
