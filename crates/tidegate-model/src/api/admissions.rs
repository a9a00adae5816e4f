//! Admissions, and the resources of the ledger (R7, R10).

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        DeserializeSeed, Error as _, IntoDeserializer as _, MapAccess, Visitor,
        value::MapAccessDeserializer,
    },
};

use crate::{
    AdmissionId, Capability, Code, Fence, PoolId, RunId, TenantId,
    admission::{AdmissionState, EndReason, GrantState},
    contracts::{GrantId, GrantToken, Needs, ResourceKind, ResourceName},
    digest::Digest,
    pool_reason::PoolReason,
};

/// What an admission asks for: a capability and what else the pool that serves it has to have (R6.1).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdmissionRequirements {
    /// What the pool has to offer.
    pub capability: Capability,
    /// What else.
    #[serde(flatten)]
    pub needs: Needs,
}

// A derived reader with `flatten` would buffer the needs, read them less strictly and lose where they stand.
impl<'de> Deserialize<'de> for AdmissionRequirements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("AdmissionRequirements", &["capability"], ReadRequirements)
    }
}

struct ReadRequirements;

impl<'de> Visitor<'de> for ReadRequirements {
    type Value = AdmissionRequirements;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a capability")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let mut capability = None;
        let rest = BesidesCapability {
            map,
            capability: &mut capability,
        };
        let needs = Needs::deserialize(MapAccessDeserializer::new(rest))?;
        let capability = capability.ok_or_else(|| A::Error::missing_field("capability"))?;
        Ok(AdmissionRequirements { capability, needs })
    }
}

/// The members but the capability, which is taken out as it comes by.
struct BesidesCapability<'a, A> {
    map: A,
    capability: &'a mut Option<Capability>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for BesidesCapability<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            if key != "capability" {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            if self.capability.replace(self.map.next_value()?).is_some() {
                return Err(A::Error::duplicate_field("capability"));
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Asks for an admission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmitRequest {
    /// Chosen by the caller, and used once: the same id with the same requirements is the same admission again. Take a new
    /// UUID (version 7, or 5 of a name of your own) for each.
    pub admission_id: AdmissionId,
    /// What is asked for.
    pub requirements: AdmissionRequirements,
    /// How long it is held without being renewed, in milliseconds (1,000 to 3,600,000; 60,000 unless given).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<i64>,
    /// Admit only if the ledger still has this version, as an explanation named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_ledger_version: Option<i64>,
}

/// Asks what an admission would meet; nothing is reserved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainAdmission {
    /// What would be asked for.
    pub requirements: AdmissionRequirements,
}

/// One resource that an admission holds, or held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GrantView {
    /// Which grant.
    pub grant_id: GrantId,
    /// Of which resource.
    pub resource: ResourceName,
    /// How much was reserved, in the resource's unit.
    pub amount: i64,
    /// Where it stands.
    pub state: GrantState,
    /// What was really used; absent until it is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<i64>,
    /// Whether more was used than was granted (R10.2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overuse: bool,
}

/// An admission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AdmissionView {
    /// Which.
    pub admission_id: AdmissionId,
    /// Where it stands.
    pub state: AdmissionState,
    /// Of what was asked for when it was made, with the tenant; the same digest is the same requirements.
    pub requirement_digest: Digest,
    /// The pool that it was admitted to.
    pub pool_id: PoolId,
    /// The pool's descriptor epoch that it was admitted under.
    pub descriptor_epoch: i64,
    /// The policy generation that it was admitted under.
    pub policy_generation: i64,
    /// Goes with every further call; raised when it ends and when a next phase is admitted.
    pub fence: Fence,
    /// What it holds of bounded resources; empty where none of those that it takes has a bound.
    pub grants: Vec<GrantView>,
    /// When it was admitted.
    pub created_at: DateTime<Utc>,
    /// When it ends unless it is renewed; absent once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    /// The version of the ledger that this was decided at.
    pub ledger_version: i64,
    /// What it may consume, signed (R9.1): whoever is shown it can check it, here or by the published keys, and who has it can
    /// narrow it. In answers to who holds the admission, while it is active; absent where nothing bounded is held, or more than a
    /// grant can name (64 resources, 8 KiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantToken>,
}

/// Asks whether a grant may be consumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyGrant {
    /// The grant, or what it was narrowed to.
    pub grant: GrantToken,
    /// What is to be consumed.
    pub resource: ResourceName,
    /// How much in all, what was consumed under it before included; 1 unless given.
    #[serde(default = "one")]
    pub amount: u64,
    /// Which call it is, from 1; leave it out where calls are not counted.
    #[serde(default)]
    pub calls: u64,
}

const fn one() -> u64 {
    1
}

/// Whether a grant may be consumed, as of now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GrantVerdict {
    /// Whether it may.
    pub valid: bool,
    /// Why not, in a word: of the grant itself (`expired`, `not_granted` …), or `admission_ended`, `fence_stale`,
    /// `epoch_withdrawn`, `given_back` of the admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Until when this may be relied on, at most a second from now.
    pub valid_until: DateTime<Utc>,
}

/// Renews an admission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewAdmission {
    /// The fence that the admission was answered with.
    pub fence: Fence,
    /// From now on, in milliseconds; as at the admission unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<i64>,
}

/// Gives an admission back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseAdmission {
    /// The fence that the admission was answered with.
    pub fence: Fence,
    /// What was really used, grant by grant; others count as granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settle: Vec<Settlement>,
}

/// Ends a phase of an admission (R10.1), all or nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndPhase {
    /// The fence that the admission was answered with.
    pub fence: Fence,
    /// What was really used, grant by grant. The second settlement of a grant changes nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settle: Vec<Settlement>,
    /// Grants that are no longer needed. An admission whose last one goes is released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub release: Vec<GrantId>,
    /// What the next phase needs: everything held is given back, and this is admitted anew under the epoch and the
    /// generation in force. Where it is refused the admission is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<AdmissionRequirements>,
}

/// What was really used of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settlement {
    /// Which grant.
    pub grant_id: GrantId,
    /// How much, in the resource's unit; may be more than was granted.
    pub amount: i64,
}

/// How a pool answers an explanation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolVerdict {
    /// The pool.
    pub pool_id: PoolId,
    /// Whether it would admit now.
    pub admits: bool,
    /// Every clause of the requirements that it does not meet, in order; such a pool never admits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<PoolReason>,
    /// The resources that are short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<ShortageView>,
}

/// A resource that is short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ShortageView {
    /// Which.
    pub resource: ResourceName,
    /// How much is asked for.
    pub needed: i64,
    /// How much is free, and not set aside for somebody else.
    pub free: i64,
    /// How much there is in all.
    pub capacity: i64,
    /// Whether it could never be met: more is asked for than there is.
    pub never: bool,
}

/// What an admission would meet (R6.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AdmissionExplanation {
    /// Whether it would be admitted now.
    pub admits: bool,
    /// How it would be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The pool that would take it, or that comes nearest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<PoolId>,
    /// The smallest change that would admit, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Every pool.
    pub pools: Vec<PoolVerdict>,
    /// Of the requirements, with the tenant.
    pub requirement_digest: Digest,
    /// The version of the ledger that this was computed at; an admission can be made conditional on it.
    pub ledger_version: i64,
}

/// Makes or changes a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutResource {
    /// How much of it there is, in its unit (0 to 10¹⁵). Less than is in use takes nothing away: it admits nothing new until
    /// use falls below it.
    pub capacity: i64,
}

/// A resource of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResourceView {
    /// Its name.
    pub resource: ResourceName,
    /// What it is.
    pub kind: ResourceKind,
    /// How much of it there is.
    pub capacity: i64,
    /// How much is held.
    pub in_use: i64,
    /// How much can be admitted; never below zero.
    pub free: i64,
    /// Since when more is held than there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_capacity_since: Option<DateTime<Utc>>,
    /// Whether it was removed and goes with its last grant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// A counter that is not the sum of what is held (R7.4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LedgerDifference {
    /// The resource.
    pub resource: ResourceName,
    /// What its counter says.
    pub counted: i64,
    /// The sum of what admissions and leases hold.
    pub held: i64,
}

/// Something that holds a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HolderView {
    /// Whose.
    pub tenant: TenantId,
    /// The admission; absent where a run holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_id: Option<AdmissionId>,
    /// The run whose attempt holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// How much.
    pub amount: i64,
    /// Since when.
    pub since: DateTime<Utc>,
}

/// What an audit of the ledger found, in one look at the database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LedgerAudit {
    /// Whether every counter is the sum of what is held.
    pub balanced: bool,
    /// The version of the ledger.
    pub ledger_version: i64,
    /// How many resources were looked at.
    pub resources: i64,
    /// How many admissions and attempts hold something.
    pub holders: i64,
    /// Every counter that is not the sum of what is held.
    pub differences: Vec<LedgerDifference>,
    /// Resources of which more is held than there is: no difference, but nothing new is admitted.
    pub over_capacity: Vec<ResourceView>,
}
