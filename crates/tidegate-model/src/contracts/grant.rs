//! What an admission grants, and what a call lease narrows it to (R9.1, R9.2). How they are signed and checked is
//! `tidegate-grants`.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::resource::ResourceName;
use crate::{
    AdmissionId, PoolId, RunId, TenantId, fence::Fence, ids::InvalidId, text_form::text_form,
};

/// The number of a key that signs grants; it stands in each grant, and in the list of published keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct GrantKeyId(pub u32);

impl fmt::Display for GrantKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

crate::text_enum! {
    /// How a grant is signed.
    pub enum GrantAlgorithm: "algorithm" {
        /// Ed25519 (RFC 8032).
        Ed25519 = "ed25519",
    }
}

/// A key by which anybody can check grants. It tells nothing by which a grant could be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PublishedGrantKey {
    /// Its number, which a grant names.
    pub key_id: GrantKeyId,
    /// How it signs.
    pub algorithm: GrantAlgorithm,
    /// Its public half: 64 lower-case hexadecimal digits.
    pub public_key: String,
    /// From when on it signs. Absent for the next one, which signs nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<DateTime<Utc>>,
    /// No grant that it signed is worth anything from then on. Absent while it signs, or will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retire_at: Option<DateTime<Utc>>,
}

/// One resource of an admission, shown as `adm_…/0`: the admission and the place in its vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId {
    /// The admission.
    pub admission: AdmissionId,
    /// The place in its vector, from 0.
    pub index: u16,
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.admission, self.index)
    }
}

impl FromStr for GrantId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            kind: "grant id",
            expected: "an admission id, '/' and a number (for example adm_0193…/0)",
        };
        let (admission, index) = text.split_once('/').ok_or_else(invalid)?;
        let number: u16 = index.parse().map_err(|_| invalid())?;
        // As it is written: no sign, no leading zero.
        if number.to_string() != index {
            return Err(invalid());
        }
        Ok(Self {
            admission: admission.parse().map_err(|_| invalid())?,
            index: number,
        })
    }
}

text_form!(GrantId, "^adm_[0-9a-f]{32}/(0|[1-9][0-9]*)$");

/// So much of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantedAmount {
    /// What it is known by in the ledger.
    pub grant_id: GrantId,
    /// The resource.
    pub resource: ResourceName,
    /// How much of it, at least 1.
    pub amount: i64,
}

/// What an active admission may consume, and until when (R9.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmissionGrant {
    /// The admission.
    pub admission_id: AdmissionId,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// Where it may be used.
    pub pool_id: PoolId,
    /// The epoch of the pool's descriptor that it was admitted under.
    pub descriptor_epoch: i64,
    /// The policy generation that it was admitted under.
    pub policy_generation: i64,
    /// The fence of the admission.
    pub fence: Fence,
    /// What it holds; each resource once.
    pub grants: Vec<GrantedAmount>,
    /// The run that it was made for, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// When it was signed, in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<DateTime<Utc>>,
    /// From when on it is worth nothing, in whole seconds.
    pub expires_at: DateTime<Utc>,
}

/// A signed grant, or what it was narrowed to. Who has it may consume, so it is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct GrantToken(pub String);

impl fmt::Debug for GrantToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrantToken(…)")
    }
}

/// What an attempt may do next: one resource, tool or model, so much of it, so many times, for a short time (R9.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallLease {
    /// The one resource, tool or model.
    pub resource: ResourceName,
    /// How much of it, over all its calls.
    pub amount: i64,
    /// How many calls.
    pub max_calls: i64,
    /// The fence of the attempt's lease.
    pub lease_fence: Fence,
    /// From when on it is worth nothing, in whole seconds; 60 s after it was made at the latest.
    pub expires_at: DateTime<Utc>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R9.1: a grant has one name, so that nothing that merely looks alike is the same.
    #[test]
    fn a_grant_has_one_name() {
        let id = GrantId {
            admission: AdmissionId::new(),
            index: 3,
        };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            id.admission.to_string(),
            format!("{}/", id.admission),
            format!("{}/03", id.admission),
            format!("{}/+3", id.admission),
            format!("{}/70000", id.admission),
            "run_0/1".to_owned(),
        ] {
            assert!(bad.parse::<GrantId>().is_err(), "{bad}");
        }
    }
}
