//! API keys (R2.1).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{
    KeyId, PoolId, TenantId,
    principal::{KeyScope, Role},
    run::ServiceClass,
};

/// What the runs that come with a key are granted; their callers can only ask for less (R2.4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyGrants {
    /// Order within the tenant, -100 to 100; 0 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// What gives way first, across tenants: only the platform's operator gives it. The default of the run's kind unless
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_class: Option<ServiceClass>,
}

impl KeyGrants {
    /// Whether nothing but the defaults is granted.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `POST /v1/admin/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateKey {
    /// What the key may do.
    pub role: Role,
    /// For roles that are bound to a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// For role `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolId>,
    /// The user that the key stands for, at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Rights besides the role's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<KeyScope>,
    /// What its runs are granted besides the defaults.
    #[serde(default, skip_serializing_if = "KeyGrants::is_default")]
    pub grants: KeyGrants,
    /// A label for people, at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Never unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}

/// A new key; the secret is shown this once and stored nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreatedKey {
    /// The key.
    pub key: KeyView,
    /// `tg_…`: goes into `Authorization: Bearer`. Absent where this repeats an earlier answer (same `Idempotency-Key`):
    /// where that one was lost, revoke the key and make another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey")
            .field("key", &self.key)
            .field("secret", &"redacted")
            .finish()
    }
}

/// A key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    /// The key.
    pub key_id: KeyId,
    /// What it may do.
    pub role: Role,
    /// Its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Its pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolId>,
    /// Its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its scopes.
    pub scopes: Vec<KeyScope>,
    /// What its runs are granted besides the defaults.
    #[serde(default, skip_serializing_if = "KeyGrants::is_default")]
    pub grants: KeyGrants,
    /// Its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was last used, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<DateTime<Utc>>,
}
