//! Roles and scopes of API keys (R2.1).

use crate::text_enum;

text_enum! {
    /// What a key may do.
    pub enum Role: "role" {
        /// The platform's operator; bound to no tenant.
        SuperAdmin = "super_admin",
        /// Administers one tenant.
        TenantAdmin = "tenant_admin",
        /// Works in one tenant.
        Member = "member",
        /// Claims work for one pool.
        Worker = "worker",
        /// Asks for admissions on behalf of one tenant.
        Coordinator = "coordinator",
        /// Publishes descriptors and moves epochs.
        PoolController = "pool_controller",
        /// Speaks for an external resource.
        ResourceOwner = "resource_owner",
    }
}

impl Role {
    /// Whether a key of this role is bound to a tenant.
    pub const fn needs_tenant(self) -> bool {
        matches!(self, Self::TenantAdmin | Self::Member | Self::Coordinator)
    }

    /// Whether a key of this role is bound to a pool.
    pub const fn needs_pool(self) -> bool {
        matches!(self, Self::Worker)
    }
}

text_enum! {
    /// A right that a key carries besides its role.
    pub enum KeyScope: "key scope" {
        /// May submit business tasks (R3.2).
        RunsBusiness = "runs:business",
        /// May name the user it acts for (R2.4).
        ActForUsers = "act_for_users",
        /// May read `/metrics` (R21.1).
        MetricsRead = "metrics:read",
    }
}

text_enum! {
    /// Whether a tenant may work (R2.6).
    pub enum TenantState: "tenant state" {
        /// May work.
        Active = "active",
        /// Nothing new is accepted; what runs is drained.
        Suspended = "suspended",
        /// Erased; the name stays taken.
        Deleted = "deleted",
    }
}
