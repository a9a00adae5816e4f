//! The keys as this instance knows them.

use std::{sync::Arc, time::Instant};

use chrono::{DateTime, TimeDelta, Utc};
use secrecy::ExposeSecret as _;
use tidegate_grants::{Signer, Verifier};
use tidegate_model::contracts::{GrantKeyId, PublishedGrantKey};
use tidegate_store::{
    grant_keys::{NewGrantKey, StoredGrantKey},
    secrets::SealedTable,
};

use crate::{
    Engine, Error,
    secrets::{SecretError, row_place, seal_for_all},
};

/// The keys of a moment, private halves opened.
#[derive(Debug)]
pub(crate) struct KeySet {
    /// What is published, by number.
    pub published: Vec<PublishedGrantKey>,
    /// Checks by them.
    pub verifier: Verifier,
    signers: Vec<KeyThatSigns>,
    /// The database's time when they were read, and since when that is.
    read: (DateTime<Utc>, Instant),
}

#[derive(Debug)]
struct KeyThatSigns {
    from: DateTime<Utc>,
    /// Or why it cannot be opened.
    signer: Result<Signer, String>,
}

impl KeySet {
    /// The database's time, counted on from when the keys were read.
    pub fn now(&self) -> DateTime<Utc> {
        let (then, since) = self.read;
        then + TimeDelta::from_std(since.elapsed()).unwrap_or(TimeDelta::MAX)
    }

    /// How old this reading is.
    pub fn age(&self) -> std::time::Duration {
        self.read.1.elapsed()
    }

    /// The key that signs now: the last whose time has come.
    pub fn signer(&self) -> Result<&Signer, Error> {
        let now = self.now();
        let signs = self
            .signers
            .iter()
            .filter(|key| key.from <= now)
            .max_by_key(|key| key.from)
            .ok_or(Error::Internal {
                what: "no key of grants signs",
            })?;
        signs.signer.as_ref().map_err(|why| {
            Error::refused(
                tidegate_model::Code::SecretUnreadable,
                format!("{why}, or replace the key with `tidegate grant-key rotate`"),
            )
        })
    }
}

/// The keys, from memory unless they changed.
pub(super) async fn keys(engine: &Engine) -> Result<Arc<KeySet>, Error> {
    let load = || async { load(engine).await.map(Arc::new) };
    engine
        .platform()
        .caches
        .grant_keys
        .get_or_load((), load)
        .await
}

/// The keys as they are now, where this instance's reading is older than `age`.
pub(super) async fn keys_anew(
    engine: &Engine,
    age: std::time::Duration,
) -> Result<Arc<KeySet>, Error> {
    if keys(engine).await?.age() > age {
        engine.platform().caches.grant_keys.forget(()).await;
    }
    keys(engine).await
}

async fn load(engine: &Engine) -> Result<KeySet, Error> {
    let asked = Instant::now();
    let stored = engine.store().grant_keys().await?;
    let published: Vec<PublishedGrantKey> = stored
        .keys
        .iter()
        .map(|key| key.view.published.clone())
        .collect();
    let verifier = Verifier::new(&published).map_err(|_| Error::Internal {
        what: "a stored key of grants is no key",
    })?;
    let signers = stored
        .keys
        .iter()
        .filter_map(|key| {
            Some(KeyThatSigns {
                from: key.view.published.not_before?,
                signer: open(engine, key).map_err(|error| crate::trouble::chain(&error)),
            })
        })
        .collect();
    Ok(KeySet {
        published,
        verifier,
        signers,
        read: (stored.now, asked),
    })
}

/// Opens a private half.
pub(super) fn open(engine: &Engine, key: &StoredGrantKey) -> Result<Signer, SecretError> {
    let published = &key.view.published;
    let place = row_place(SealedTable::GrantKeys, &published.public_key);
    let open = engine.platform().keyring.open(place, &key.sealed)?;
    open.expose_secret()
        .try_into()
        .ok()
        .and_then(|secret| Signer::new(published.key_id, secret).ok())
        .filter(|signer| signer.public_key() == published.public_key)
        .ok_or_else(|| SecretError::unreadable(place))
}

/// A key that was never there before, sealed so that every server can open it.
pub(super) async fn fresh(engine: &Engine) -> Result<NewGrantKey, Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|_| SecretError::NoRandomness)?;
    let signer = Signer::new(GrantKeyId(0), &secret).map_err(|_| Error::Internal {
        what: "random bytes are no key",
    })?;
    let public_key = signer.public_key();
    let place = row_place(SealedTable::GrantKeys, &public_key);
    let sealed = seal_for_all(engine, place, &secret).await?;
    Ok(NewGrantKey { public_key, sealed })
}

/// Makes the first two keys of a database that has none.
pub(crate) async fn ensure_first(engine: &Engine) -> Result<(), Error> {
    if !engine.store().grant_keys().await?.keys.is_empty() {
        return Ok(());
    }
    let (signs, next) = (fresh(engine).await?, fresh(engine).await?);
    Ok(engine.store().first_grant_keys(&signs, &next).await?)
}
