//! What operators read: instances, revisions, audit, what dangles after a restore.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Fence, InstanceId, PoolId, RunId, TenantId};

/// A server process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct InstanceView {
    /// The process.
    pub instance_id: InstanceId,
    /// Its version.
    pub version: String,
    /// `chat`, `admin`.
    pub roles: Vec<String>,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it was last seen.
    pub seen_at: DateTime<Utc>,
    /// Whether it was seen within the stated time; else it is gone since `seenAt`.
    pub alive: bool,
    /// Whether it takes no new work.
    pub draining: bool,
    /// The config revision it serves (R17.2).
    pub revision: i64,
    /// Since when it serves it.
    pub revision_since: DateTime<Utc>,
    /// Its wall clock against the database's, in milliseconds (R4.1).
    pub clock_skew_ms: i64,
    /// Runs it may execute at once.
    pub concurrency: i32,
    /// Of them of bucket `background`.
    pub background_concurrency: i32,
    /// Leases it holds; of an instance that is gone those that were not taken over yet.
    pub running: i32,
    /// Whether notifications reach it (R17.1, O-23).
    pub listening: bool,
}

/// A numbered administrative write (R17).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RevisionView {
    /// Its number.
    pub revision: i64,
    /// What kind of thing changed.
    pub kind: String,
    /// Which one.
    pub subject: String,
    /// When.
    pub at: DateTime<Utc>,
    /// Since when every live instance serves it; absent while one does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_since: Option<DateTime<Utc>>,
}

/// An audited write (R2.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditView {
    /// Its number.
    pub seq: i64,
    /// When.
    pub at: DateTime<Utc>,
    /// Who: a key id, or `cli:` and the operating system's user.
    pub actor: String,
    /// The tenant concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// What was done, for example `tenant.suspend`.
    pub action: String,
    /// To what.
    pub subject: String,
    /// Before; secrets redacted.
    pub before: Value,
    /// After; secrets redacted.
    pub after: Value,
    /// The request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// A lease of a lost history of the database (R4.7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DanglingLease {
    /// The run.
    pub run_id: RunId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The fence of the lost history.
    pub fence: Fence,
    /// Who held it.
    pub holder: String,
    /// Its pool.
    pub pool: PoolId,
    /// When the lease ran out or will.
    pub lease_until: DateTime<Utc>,
}

/// `GET /v1/admin/recovery`, `tidegate recover`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecoveryView {
    /// The generation of fences in force.
    pub generation: i32,
    /// When it rose last.
    pub since: DateTime<Utc>,
    /// Why it rose.
    pub cause: String,
    /// Leases of earlier generations that have not been taken over yet.
    pub leases: Vec<DanglingLease>,
    /// Attempts that a takeover closed because their generation was lost.
    pub recovered: i64,
}

/// `GET /readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether traffic should come here.
    pub ready: bool,
    /// Each check with what it found.
    pub checks: Vec<ReadinessCheck>,
}

/// One check of readiness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReadinessCheck {
    /// Its name.
    pub name: String,
    /// Whether it passed.
    pub ok: bool,
    /// What was found, without addresses or secrets.
    pub detail: String,
}
