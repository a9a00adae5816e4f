//! From a bearer text to a principal (R2.1).
//!
//! A key is remembered until a revision concerns keys or tenants, at most for the cache's time. Whether it has expired
//! is the database's word: it says how long the key is still good, and that time is counted here on the monotonic clock
//! from before the question was sent.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use tidegate_model::{Code, principal::TenantState};
use tidegate_store::keys::LiveKey;

use crate::{Engine, Error, Principal, keys::secret};

/// A key as it is remembered.
#[derive(Debug)]
pub struct CachedKey {
    principal: Principal,
    good_until: Option<Instant>,
}

impl CachedKey {
    fn new(live: LiveKey, asked_at: Instant) -> Option<Self> {
        if live.tenant_state == Some(TenantState::Deleted) {
            return None;
        }
        let good_until = match live.remaining_ms {
            None => None,
            Some(ms) => {
                let remaining = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
                // A key that outlives the clock's range is good for as long as this process.
                asked_at.checked_add(remaining)
            }
        };
        Some(Self {
            principal: Principal::of(live.key),
            good_until,
        })
    }

    fn is_good(&self) -> bool {
        self.good_until.is_none_or(|until| Instant::now() < until)
    }
}

/// The caller that shows this key. One answer for every key that does not open: it does not say whether a key was ever
/// there.
pub async fn authenticate(engine: &Engine, bearer: &str) -> Result<Principal, Error> {
    if !secret::has_form(bearer) {
        return Err(refused());
    }
    let hash: [u8; 32] = Sha256::digest(bearer.as_bytes()).into();
    let cache = &engine.platform().caches.keys;
    let load = || async {
        let asked_at = Instant::now();
        engine
            .store()
            .live_key(&hash)
            .await?
            .and_then(|live| CachedKey::new(live, asked_at))
            .map(Arc::new)
            .ok_or_else(refused)
    };
    let key = cache.get_or_load(hash, load).await?;
    if !key.is_good() {
        cache.forget(hash).await;
        return Err(refused());
    }
    engine
        .platform()
        .used_keys
        .lock()
        .insert(key.principal.key_id);
    Ok(key.principal.clone())
}

fn refused() -> Error {
    Error::refused(
        Code::Unauthenticated,
        "the API key is missing, unknown, expired or revoked; send a valid one as `Authorization: Bearer tg_…`",
    )
}
