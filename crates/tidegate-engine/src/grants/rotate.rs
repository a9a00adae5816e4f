//! Replacing the key that signs grants.

use tidegate_model::{
    Code, ConfigKind,
    api::{GrantKeyList, GrantKeyState},
};
use tidegate_store::grant_keys::{GrantKeyRotation, RotateGrantKeys};

use super::{
    LIFE_MAX, PUBLISHED_AHEAD,
    keys::{fresh, open},
};
use crate::{Engine, Error, Principal};

/// Lets the next key sign: at once where it was published for long enough, which it was unless the last rotation is minutes
/// ago. The key before retires when nothing that it signed is worth anything any more. A key that cannot be opened is
/// replaced with it, so that this is also the way out where `CONFIG_ENC_KEY` was lost.
pub async fn rotate(engine: &Engine, principal: &Principal) -> Result<GrantKeyList, Error> {
    principal.require_operator()?;
    let stored = engine.store().grant_keys().await?;
    let opens = |state: GrantKeyState| {
        let mut of_state = stored.keys.iter().filter(|key| key.view.state == state);
        of_state.all(|key| open(engine, key).is_ok())
    };
    let replace_next = !opens(GrantKeyState::Next);
    let mut keys = Vec::new();
    for _ in 0..=usize::from(replace_next) {
        keys.push(fresh(engine).await?);
    }
    let rotation = RotateGrantKeys {
        fresh: keys,
        replace_next,
        at_once: !opens(GrantKeyState::Active),
        ahead: PUBLISHED_AHEAD,
        // An instance that has not heard of it signs with the one before for as long as it takes to be heard of.
        life: LIFE_MAX + PUBLISHED_AHEAD,
    };
    let written = engine
        .store()
        .rotate_grant_keys(rotation, &principal.author())
        .await?;
    match engine.written(ConfigKind::GrantKey, written).await {
        GrantKeyRotation::Rotated(items) => Ok(GrantKeyList { items }),
        GrantKeyRotation::Starting(key, from) => Err(Error::refused(
            Code::StateConflict,
            format!(
                "the rotation before is not over: key {key} signs from {from} on; rotate again after that"
            ),
        )),
        GrantKeyRotation::NoKeys => Err(Error::Internal {
            what: "the keys of grants are not one that signs and one that is next",
        }),
    }
}
