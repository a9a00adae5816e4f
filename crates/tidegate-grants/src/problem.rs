//! Why a grant is not good for what is asked, one member for each way to fail.

use chrono::{DateTime, Utc};
use tidegate_model::{
    Fence,
    contracts::{GrantKeyId, ResourceName},
};

/// Whose fence is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceOf {
    /// The admission's.
    Admission,
    /// The attempt's lease.
    Lease,
}

impl std::fmt::Display for FenceOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Admission => "admission",
            Self::Lease => "lease",
        })
    }
}

/// Why a token is refused. No member repeats the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantProblem {
    /// It cannot be read.
    #[error("not a grant: {why}")]
    Malformed {
        /// What is wrong with it.
        why: &'static str,
    },
    /// It exceeds a bound.
    #[error("the grant has too many {what}; at most {limit}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// It says something that is not in the vocabulary of grants.
    #[error("the grant says something that has no meaning in a grant: {what}")]
    Foreign {
        /// What it says.
        what: &'static str,
    },
    /// It names a key that is not published, or not in force at this time.
    #[error("the grant was signed with key {key}, which is not among the published keys")]
    UnknownKey {
        /// The key.
        key: GrantKeyId,
    },
    /// A signature is wrong: it was changed, or signed by somebody else.
    #[error("a signature of the grant is wrong")]
    BadSignature,
    /// Its time is over.
    #[error("the grant ended at {at}")]
    Expired {
        /// When.
        at: DateTime<Utc>,
    },
    /// It is not for this resource, or no longer after it was narrowed.
    #[error("the grant is not for {resource}")]
    NotGranted {
        /// What was asked for.
        resource: ResourceName,
    },
    /// It is for less.
    #[error("{asked} is more than the {granted} that are granted")]
    AmountAbove {
        /// What was asked for, together with what was used.
        asked: u64,
        /// What is granted.
        granted: u64,
    },
    /// It is for fewer calls.
    #[error("call {asked} is more than the {granted} that are granted")]
    CallsAbove {
        /// Which call it is.
        asked: u64,
        /// How many are granted.
        granted: u64,
    },
    /// Somebody newer holds what it was for.
    #[error("the fence of its {of} is {held}, and {known} is known")]
    FenceStale {
        /// Whose fence.
        of: FenceOf,
        /// The grant's.
        held: Fence,
        /// The highest that is known.
        known: Fence,
    },
    /// It is wider or lives longer than a call lease may.
    #[error("the grant is no call lease: {why}")]
    NotACallLease {
        /// What it lacks.
        why: &'static str,
    },
}

impl GrantProblem {
    /// One word for it, for metrics and for programs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed",
            Self::TooLarge { .. } => "too_large",
            Self::Foreign { .. } => "foreign",
            Self::UnknownKey { .. } => "unknown_key",
            Self::BadSignature => "bad_signature",
            Self::Expired { .. } => "expired",
            Self::NotGranted { .. } => "not_granted",
            Self::AmountAbove { .. } => "amount_above",
            Self::CallsAbove { .. } => "calls_above",
            Self::FenceStale { .. } => "fence_stale",
            Self::NotACallLease { .. } => "not_a_call_lease",
        }
    }
}

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key {key} of grants is not a key of its algorithm")]
pub struct KeyProblem {
    /// Its number.
    pub key: GrantKeyId,
}

/// Why nothing was signed or narrowed.
#[derive(Debug, thiserror::Error)]
pub enum SignProblem {
    /// The grant has a value that no grant may have.
    #[error("the grant cannot be signed: {what}")]
    Invalid {
        /// Which, and why not.
        what: &'static str,
    },
    /// It would exceed a bound.
    #[error("the grant would have too many {what}; at most {limit}")]
    TooLarge {
        /// What there would be too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// What was to be narrowed cannot be read.
    #[error(transparent)]
    Unreadable(#[from] GrantProblem),
    /// It was sealed, so that nobody can narrow it any more.
    #[error("the grant is sealed and cannot be narrowed")]
    Sealed,
    /// The library did not do its part.
    #[error("the grant could not be encoded")]
    Library(#[source] biscuit_auth::error::Token),
}
