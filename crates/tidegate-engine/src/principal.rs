//! Who asks: the key that was shown, with its role, tenant, pool, user and scopes (R2.1, R2.4).

use chrono::{DateTime, Utc};
use tidegate_model::{
    Code, KeyId, PoolId, TenantId,
    api::KeyView,
    principal::{KeyScope, Role},
};
use tidegate_store::Author;

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
    /// The request it came with, for the audit log.
    pub request_id: Option<String>,
}

impl Principal {
    /// The principal of a key.
    pub fn of(key: KeyView) -> Self {
        Self {
            key_id: key.key_id,
            role: key.role,
            tenant: key.tenant,
            pool: key.pool,
            user: key.user,
            scopes: key.scopes,
            expires_at: key.expires_at,
            request_id: None,
        }
    }

    /// The executor that a chat instance carries: a worker of its pool like any other, without a stored key.
    pub fn built_in_worker(pool: PoolId) -> Self {
        Self {
            key_id: KeyId::from_uuid(uuid::Uuid::nil()),
            role: Role::Worker,
            tenant: None,
            pool: Some(pool),
            user: None,
            scopes: Vec::new(),
            expires_at: None,
            request_id: None,
        }
    }

    /// The same caller with the id of its request.
    #[must_use]
    pub fn with_request_id(self, request_id: impl Into<String>) -> Self {
        Self {
            request_id: Some(request_id.into()),
            ..self
        }
    }

    /// Refuses every role but these (R2.3).
    pub fn require_role(&self, allowed: &[Role]) -> Result<(), Error> {
        if allowed.contains(&self.role) {
            return Ok(());
        }
        let names: Vec<&str> = allowed.iter().map(|role| role.as_str()).collect();
        Err(Error::refused(
            Code::Forbidden,
            format!("this needs a key of role {}", names.join(" or ")),
        ))
    }

    /// Refuses everybody but the platform's operator, who is bound to no tenant (R2.3).
    pub fn require_operator(&self) -> Result<(), Error> {
        self.require_role(&[Role::SuperAdmin])
    }

    /// The tenant that an administrator may act on: any for the operator, its own for a tenant's administrator. Another
    /// one is as good as none (R2.2).
    pub fn require_admin_of(&self, tenant: &TenantId) -> Result<(), Error> {
        self.require_role(&[Role::SuperAdmin, Role::TenantAdmin])?;
        if self.role == Role::TenantAdmin && self.tenant.as_ref() != Some(tenant) {
            return Err(Error::not_found("tenant"));
        }
        Ok(())
    }

    /// Who writes, for the audit log.
    pub(crate) fn author(&self) -> Author {
        Author {
            actor: self.key_id.to_string(),
            request_id: self.request_id.clone(),
        }
    }

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
