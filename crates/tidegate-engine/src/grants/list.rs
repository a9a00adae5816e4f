//! Which keys there are: for whoever checks grants, and for the operator.

use tidegate_model::api::{GrantKeyList, PublishedGrantKeys};

use super::keys::keys;
use crate::{Engine, Error, Principal};

/// The keys by which anybody can check grants. From memory: anybody may ask, as often as they like. What has retired since
/// it was read is left out.
pub async fn published(engine: &Engine) -> Result<PublishedGrantKeys, Error> {
    let keys = keys(engine).await?;
    let now = keys.now();
    let good =
        |key: &&tidegate_model::contracts::PublishedGrantKey| keys.verifier.knows(key.key_id, now);
    Ok(PublishedGrantKeys {
        keys: keys.published.iter().filter(good).cloned().collect(),
    })
}

/// The keys with what each does.
pub async fn list(engine: &Engine, principal: &Principal) -> Result<GrantKeyList, Error> {
    principal.require_operator()?;
    let stored = engine.store().grant_keys().await?;
    Ok(GrantKeyList {
        items: stored.keys.into_iter().map(|key| key.view).collect(),
    })
}
