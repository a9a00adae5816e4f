//! Who asks: the key that was shown, with its role, tenant, pool, user and scopes (R2.1, R2.4).

use chrono::{DateTime, Utc};
use tidegate_model::{
    Code, KeyId, PoolId, TenantId,
    api::{KeyGrants, KeyView},
    principal::{KeyScope, Role},
};
use tidegate_store::{Author, Intent};

use crate::{Error, checks};

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
    /// What its runs are granted.
    pub grants: KeyGrants,
    /// When the key ends.
    pub expires_at: Option<DateTime<Utc>>,
    /// The request it came with, for the audit log.
    pub request_id: Option<String>,
    /// What makes a repeat of the request harmless, where it carries an idempotency key.
    pub intent: Option<Intent>,
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
            grants: key.grants,
            expires_at: key.expires_at,
            request_id: None,
            intent: None,
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
            grants: KeyGrants::default(),
            expires_at: None,
            request_id: None,
            intent: None,
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

    /// Whether what was answered is an earlier answer of the same write (R3.1).
    pub fn is_replayed(&self) -> bool {
        self.intent.as_ref().is_some_and(Intent::is_replayed)
    }

    /// Who writes, for the audit log, and under which intent.
    pub(crate) fn author(&self) -> Author {
        Author {
            actor: self.key_id.to_string(),
            request_id: self.request_id.clone(),
            intent: self.intent.clone(),
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

    /// The user that a request is for: the key's own, or the one it names, where the key may act for users (R2.4).
    pub fn user_of(&self, named: Option<String>) -> Result<Option<String>, Error> {
        if let Some(named) = &named {
            checks::filled("user", named, checks::LABEL_MAX)?;
        }
        match named {
            None => Ok(self.user.clone()),
            Some(named) if self.user.as_ref() == Some(&named) => Ok(Some(named)),
            Some(named) if self.has_scope(KeyScope::ActForUsers) => Ok(Some(named)),
            Some(_) => Err(Error::refused(
                Code::Forbidden,
                "naming another user than the key's own needs a key with the scope act_for_users; make one with \
                 `tidegate key create --scope act_for_users`, or leave user out",
            )),
        }
    }

    /// Whether the key carries a scope.
    pub fn has_scope(&self, scope: KeyScope) -> bool {
        self.scopes.contains(&scope)
    }
}
