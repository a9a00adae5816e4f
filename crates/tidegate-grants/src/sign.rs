//! Making a grant, and narrowing one that somebody holds.

use std::collections::HashSet;

use base64::{Engine as _, engine::general_purpose::URL_SAFE};
use biscuit_auth::{
    Algorithm, BiscuitBuilder, KeyPair, PrivateKey, UnverifiedBiscuit, datalog::SymbolTable,
};
use chrono::{DateTime, TimeDelta, Utc};
use tidegate_model::contracts::{
    AdmissionGrant, CallLease, GrantAlgorithm, GrantKeyId, PublishedGrantKey,
};

use crate::{
    limits::{BLOCKS_MAX, CALL_LEASE_MAX_SECONDS, GRANTS_MAX, TOKEN_MAX_BYTES},
    problem::{KeyProblem, SignProblem},
    read,
    terms::{self, CallTerms},
    words,
};

/// Random bytes, of which one key between two blocks is made. Never twice the same.
pub struct Entropy(pub [u8; 32]);

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy")
    }
}

fn pair(bytes: &[u8; 32]) -> Result<KeyPair, biscuit_auth::error::Format> {
    Ok(KeyPair::from(&PrivateKey::from_bytes(
        bytes,
        Algorithm::Ed25519,
    )?))
}

fn library(error: impl Into<biscuit_auth::error::Token>) -> SignProblem {
    SignProblem::Library(error.into())
}

/// A grant in its text form: whoever has it may use it. Not printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedGrant(String);

impl std::fmt::Debug for SignedGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignedGrant")
    }
}

/// The private half of a key.
pub struct Signer {
    id: GrantKeyId,
    pair: KeyPair,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a grant, where something is; the same when it is signed and when it is read.
pub(crate) fn invalid(grant: &AdmissionGrant) -> Option<&'static str> {
    let mut resources = HashSet::new();
    let mut places = HashSet::new();
    for held in &grant.grants {
        if held.grant_id.admission != grant.admission_id {
            return Some("a grant of another admission");
        }
        if held.amount < 1 {
            return Some("an amount below 1");
        }
        if !places.insert(held.grant_id.index) || !resources.insert(&held.resource) {
            return Some("the same resource or place twice");
        }
    }
    if grant.grants.is_empty() {
        return Some("it grants nothing");
    }
    if grant.descriptor_epoch < 0 || grant.policy_generation < 0 {
        return Some("an epoch or generation below 0");
    }
    if grant.fence.generation < 0 || grant.fence.number < 0 {
        return Some("a fence below 0");
    }
    None
}

impl Signer {
    /// A key from its secret bytes.
    pub fn new(id: GrantKeyId, secret: &[u8; 32]) -> Result<Self, KeyProblem> {
        Ok(Self {
            id,
            pair: pair(secret).map_err(|_| KeyProblem { key: id })?,
        })
    }

    /// Its number.
    pub const fn id(&self) -> GrantKeyId {
        self.id
    }

    /// Its public half, as it is published.
    pub fn public_key(&self) -> String {
        self.pair.public().to_bytes_hex()
    }

    /// What is published of it.
    pub fn publish(&self, not_before: Option<DateTime<Utc>>) -> PublishedGrantKey {
        PublishedGrantKey {
            key_id: self.id,
            algorithm: GrantAlgorithm::Ed25519,
            public_key: self.public_key(),
            not_before,
            retire_at: None,
        }
    }

    /// Signs a grant. Its times are cut to whole seconds.
    pub fn sign(
        &self,
        grant: &AdmissionGrant,
        entropy: &Entropy,
    ) -> Result<SignedGrant, SignProblem> {
        if let Some(what) = invalid(grant) {
            return Err(SignProblem::Invalid { what });
        }
        if grant.grants.len() > GRANTS_MAX {
            return Err(SignProblem::TooLarge {
                what: "resources",
                limit: GRANTS_MAX,
            });
        }
        let token = BiscuitBuilder::new()
            .merge(words::authority(grant)?)
            .root_key_id(self.id.0)
            .build_with_key_pair(
                &self.pair,
                SymbolTable::new(),
                &pair(&entropy.0).map_err(library)?,
            )
            .map_err(library)?;
        SignedGrant::of(&token.to_vec().map_err(library)?)
    }
}

impl SignedGrant {
    fn of(bytes: &[u8]) -> Result<Self, SignProblem> {
        let text = URL_SAFE.encode(bytes);
        if text.len() > TOKEN_MAX_BYTES {
            return Err(SignProblem::TooLarge {
                what: "bytes",
                limit: TOKEN_MAX_BYTES,
            });
        }
        Ok(Self(text))
    }

    /// Takes a grant that was received, if it reads as one. Nothing of it is proven.
    pub fn received(text: &str) -> Result<Self, crate::GrantProblem> {
        read::read(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The text to send. It is a credential: it belongs into no log.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A grant that allows less, made without any key of the server. What the terms do not name stays as it is, and terms
    /// that are wider than the grant widen nothing.
    pub fn narrow(&self, terms: &CallTerms, entropy: &Entropy) -> Result<Self, SignProblem> {
        let said = read::read(&self.0)?;
        if said.sealed {
            return Err(SignProblem::Sealed);
        }
        if terms.is_empty() {
            return Err(SignProblem::Invalid {
                what: "it narrows nothing",
            });
        }
        if said.narrowed.len() + 2 > BLOCKS_MAX {
            return Err(SignProblem::TooLarge {
                what: "blocks",
                limit: BLOCKS_MAX,
            });
        }
        let token = UnverifiedBiscuit::from(&said.bytes).map_err(library)?;
        let next = pair(&entropy.0).map_err(library)?;
        let narrowed = token
            .append_with_keypair(&next, words::narrowing(terms)?)
            .map_err(library)?;
        Self::of(&narrowed.to_vec().map_err(library)?)
    }

    /// The same grant, to which nobody can add a block any more. What it allows does not change.
    pub fn seal(&self) -> Result<Self, SignProblem> {
        let said = read::read(&self.0)?;
        if said.sealed {
            return Ok(self.clone());
        }
        let token = UnverifiedBiscuit::from(&said.bytes).map_err(library)?;
        let sealed = token.seal().map_err(library)?;
        Self::of(&sealed.to_vec().map_err(library)?)
    }

    /// A call lease of this grant (R9.2). What the grant does not hold is refused here already, and so is a lease of more
    /// than [`CALL_LEASE_MAX_SECONDS`].
    pub fn call_lease(
        &self,
        lease: &CallLease,
        now: DateTime<Utc>,
        entropy: &Entropy,
    ) -> Result<Self, SignProblem> {
        let said = read::read(&self.0)?;
        let terms = call_terms(lease, now)?;
        let before: Vec<CallTerms> = said.narrowed.into_iter().map(|(_, terms)| terms).collect();
        let granted = terms::granted(&said.grant, &before, &lease.resource)?;
        match terms.max_amount {
            Some(asked) if asked > granted => {
                Err(crate::GrantProblem::AmountAbove { asked, granted }.into())
            }
            _ => self.narrow(&terms, entropy),
        }
    }
}

/// The terms of a call lease.
pub fn call_terms(lease: &CallLease, now: DateTime<Utc>) -> Result<CallTerms, SignProblem> {
    let invalid = |what| SignProblem::Invalid { what };
    if lease.expires_at - now > TimeDelta::seconds(CALL_LEASE_MAX_SECONDS) {
        return Err(invalid("a call lease lives 60 s at most"));
    }
    let count = |number: i64| match u64::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(invalid("an amount or a number of calls below 1")),
    };
    Ok(CallTerms {
        resource: Some(lease.resource.clone()),
        max_amount: Some(count(lease.amount)?),
        max_calls: Some(count(lease.max_calls)?),
        expires_at: Some(lease.expires_at),
        lease_fence: Some(lease.lease_fence),
    })
}
