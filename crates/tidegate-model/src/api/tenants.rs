//! Tenants and what they see of themselves.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    KeyId, PoolId, TenantId,
    principal::{KeyScope, Role, TenantState},
};

/// `POST /v1/admin/tenants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTenant {
    /// Immutable and never reused.
    pub tenant: TenantId,
    /// For people, at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// `POST /v1/admin/tenants/{id}/state`. `deleted` erases all content and cannot be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetTenantState {
    /// The new state.
    pub state: TenantState,
}

/// `PUT /v1/admin/tenants/{tenant}/override`: what a tenant has of its own, as a whole. What is left out comes from its
/// tier; at least one is needed, `DELETE` takes all away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutTenantOverride {
    /// A tier of the table; `standard` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Foreground runs at once, 1 to 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground_runs_max: Option<i32>,
    /// Background runs at once, 1 to 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_runs_max: Option<i32>,
    /// Share beside other tenants, 1 to 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TenantView {
    /// The tenant.
    pub tenant: TenantId,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Whether it may work.
    pub state: TenantState,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// `GET /v1/me`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MeView {
    /// The key that was used.
    pub key_id: KeyId,
    /// Its role.
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
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}

crate::text_enum! {
    /// Whether a limit holds for one server process or for all (R1.9).
    pub enum LimitScope: "limit scope" {
        /// Each process grants it.
        Instance = "instance",
        /// All processes together.
        Cluster = "cluster",
    }
}

/// One effective limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitView {
    /// Its name, unit last.
    pub name: String,
    /// Its value; null is unlimited.
    pub value: Value,
    /// `built-in tier standard`, `tenant override`, a setting …
    pub source: String,
    /// Whether it holds for one process or for all.
    pub scope: LimitScope,
}

/// `GET /v1/me/limits`, `GET /v1/admin/tenants/{id}/limits`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitsView {
    /// The tenant.
    pub tenant: TenantId,
    /// Each limit with its source.
    pub limits: Vec<LimitView>,
}

/// `GET /v1/me/usage`: what a tenant has queued and running now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct UsageView {
    /// The tenant.
    pub tenant: TenantId,
    /// By bucket.
    pub buckets: Vec<BucketUsage>,
}

/// Queued and running runs of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BucketUsage {
    /// The bucket.
    pub bucket: crate::run::QuotaBucket,
    /// May start or wait to start.
    pub queued: i64,
    /// Under a lease.
    pub running: i64,
    /// The most that may run; absent where unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<i64>,
}
