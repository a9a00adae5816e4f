//! Checking a grant by the published keys, without asking anybody.

use std::collections::HashMap;

use biscuit_auth::{Algorithm, Biscuit, PublicKey};
use chrono::{DateTime, TimeDelta, Utc};
use tidegate_model::contracts::{AdmissionGrant, GrantKeyId, PublishedGrantKey};

use crate::{
    limits::CALL_LEASE_MAX_SECONDS,
    problem::{GrantProblem, KeyProblem},
    read::{self, Said, malformed},
    terms::{self, CallTerms, Demand},
};

/// What a block that narrows is known by: calls are counted under it. Nothing can be made from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId([u8; 16]);

impl BlockId {
    /// The first half of the point of its signature, which no two signatures share.
    pub(crate) fn of(signature: &[u8]) -> Result<Self, GrantProblem> {
        signature
            .first_chunk()
            .copied()
            .map(Self)
            .ok_or(malformed("a signature is too short"))
    }
}

impl std::fmt::Display for BlockId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What one block narrows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// What the block is known by.
    pub id: BlockId,
    /// What it narrows to.
    pub terms: CallTerms,
}

/// What a grant says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The key it names.
    pub key: GrantKeyId,
    /// What was granted.
    pub grant: AdmissionGrant,
    /// What narrows it, in order.
    pub narrowed: Vec<Bound>,
    /// Whether nobody can narrow it further.
    pub sealed: bool,
}

/// What a grant says, proven by its signatures. Kept until it ends, so that a signature is checked once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified(Claims);

struct Known {
    key: PublicKey,
    retire_at: Option<DateTime<Utc>>,
}

/// Checks grants by a list of published keys.
pub struct Verifier(HashMap<GrantKeyId, Known>);

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Verifier").field(&self.0.keys()).finish()
    }
}

/// What a token says, without any proof of it.
pub fn read_unverified(token: &str) -> Result<Claims, GrantProblem> {
    read::read(token).map(|said| claims(said).0)
}

fn claims(said: Said) -> (Claims, Vec<u8>) {
    let narrowed = said
        .narrowed
        .into_iter()
        .map(|(id, terms)| Bound { id, terms })
        .collect();
    let claims = Claims {
        key: said.key,
        grant: said.grant,
        narrowed,
        sealed: said.sealed,
    };
    (claims, said.bytes)
}

impl Claims {
    fn terms(&self) -> Vec<CallTerms> {
        self.narrowed.iter().map(|it| it.terms.clone()).collect()
    }

    /// From when on it is worth nothing.
    pub fn ends_at(&self) -> DateTime<Utc> {
        terms::ends_at(&self.grant, &self.terms())
    }
}

impl Verifier {
    /// By these keys. A key that is none of its algorithm fails them all: the list is not what was published.
    pub fn new<'a>(
        published: impl IntoIterator<Item = &'a PublishedGrantKey>,
    ) -> Result<Self, KeyProblem> {
        published
            .into_iter()
            .map(|published| {
                let id = published.key_id;
                let key = PublicKey::from_bytes_hex(&published.public_key, Algorithm::Ed25519)
                    .map_err(|_| KeyProblem { key: id })?;
                let retire_at = published.retire_at;
                Ok((id, Known { key, retire_at }))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether a key is known, and not retired. When it began does not matter: before that it has signed nothing, and who
    /// holds an older list must not refuse what was signed since.
    pub fn knows(&self, id: GrantKeyId, now: DateTime<Utc>) -> bool {
        self.key(id, now).is_ok()
    }

    fn key(&self, id: GrantKeyId, now: DateTime<Utc>) -> Result<PublicKey, GrantProblem> {
        match self.0.get(&id) {
            Some(Known { key, retire_at }) if retire_at.is_none_or(|at| now < at) => Ok(*key),
            _ => Err(GrantProblem::UnknownKey { key: id }),
        }
    }

    /// Checks the signatures of a token and reads it. What it allows is asked of the answer.
    pub fn signatures(&self, token: &str, now: DateTime<Utc>) -> Result<Verified, GrantProblem> {
        let (claims, bytes) = claims(read::read(token)?);
        let key = self.key(claims.key, now)?;
        Biscuit::from(&bytes, key).map_err(|_| GrantProblem::BadSignature)?;
        Ok(Verified(claims))
    }

    /// Checks a token for a demand: signatures, time, fences, resource, amount, calls.
    pub fn verify(
        &self,
        token: &str,
        now: DateTime<Utc>,
        demand: &Demand,
    ) -> Result<Verified, GrantProblem> {
        let verified = self.signatures(token, now)?;
        verified.allows(now, demand)?;
        Ok(verified)
    }
}

impl Verified {
    /// What it says.
    pub const fn claims(&self) -> &Claims {
        &self.0
    }

    /// Whether it allows a demand now.
    pub fn allows(&self, now: DateTime<Utc>, demand: &Demand) -> Result<(), GrantProblem> {
        terms::decide(&self.0.grant, &self.0.terms(), now, demand)
    }

    /// Demands that it is a call lease (R9.2): bound to one resource, to an amount, to a number of calls and to an attempt,
    /// and over within [`CALL_LEASE_MAX_SECONDS`]. A point that checks offline asks this, so that nothing wider reaches it.
    pub fn is_call_lease(&self, now: DateTime<Utc>) -> Result<(), GrantProblem> {
        let any = |has: fn(&CallTerms) -> bool| self.0.narrowed.iter().any(|it| has(&it.terms));
        let lacks = [
            (
                any(|it| it.resource.is_some()),
                "it is not for one resource",
            ),
            (any(|it| it.max_amount.is_some()), "it has no amount"),
            (
                any(|it| it.max_calls.is_some()),
                "it has no number of calls",
            ),
            (any(|it| it.lease_fence.is_some()), "it names no attempt"),
            (
                self.0.ends_at() - now <= TimeDelta::seconds(CALL_LEASE_MAX_SECONDS),
                "it lives for more than 60 s",
            ),
        ];
        match lacks.into_iter().find(|(has, _)| !has) {
            None => Ok(()),
            Some((_, why)) => Err(GrantProblem::NotACallLease { why }),
        }
    }
}
