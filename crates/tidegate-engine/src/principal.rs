//! Who asks: the key that was shown, with its role, tenant, pool, user and scopes (R2.1, R2.4).

use chrono::{DateTime, Utc};
use tidegate_model::{
    Code, KeyId, PoolId, TenantId,
    principal::{KeyScope, Role},
};

use crate::Error;

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The key.
    pub key_id: KeyId,
    /// What it may do.
    pub role: Role,
    /// Its tenant; only for roles that are bound to one.
    pub tenant: Option<TenantId>,
    /// Its pool; only for workers.
    pub pool: Option<PoolId>,
    /// The user it stands for.
    pub user: Option<String>,
    /// Rights besides the role's.
    pub scopes: Vec<KeyScope>,
    /// When the key ends.
    pub expires_at: Option<DateTime<Utc>>,
}

impl Principal {
    /// The tenant that the caller works in; never taken from a body (R2.4).
    pub fn require_tenant(&self) -> Result<&TenantId, Error> {
        self.tenant.as_ref().ok_or_else(|| {
            Error::refused(
                Code::Forbidden,
                "this needs a key that is bound to a tenant; use a tenant_admin or member key",
            )
        })
    }

    /// The pool that the caller claims for.
    pub fn require_pool(&self) -> Result<&PoolId, Error> {
        self.pool.as_ref().ok_or_else(|| {
            Error::refused(
                Code::Forbidden,
                "this needs a worker key; make one with `tidegate key create --role worker --pool NAME`",
            )
        })
    }

    /// Whether the key carries a scope.
    pub fn has_scope(&self, scope: KeyScope) -> bool {
        self.scopes.contains(&scope)
    }
}
