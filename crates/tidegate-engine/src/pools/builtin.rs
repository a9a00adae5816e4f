//! The pool of the executor that every chat instance carries: a pool like any other, published by the server (R5.4).

use tidegate_model::{ConfigKind, PoolId};
use tidegate_store::Author;

use crate::{Engine, Error};

/// Publishes what the built-in executor offers: a new epoch where that changed, nothing otherwise.
pub async fn ensure_builtin(engine: &Engine) -> Result<(), Error> {
    let settings = engine.settings();
    if !settings.roles.chat {
        return Ok(());
    }
    let written = engine
        .store()
        .ensure_descriptor(
            &settings.execution_scope,
            &PoolId::builtin(),
            &settings.builtin_capabilities,
            &Author::system(),
        )
        .await?;
    engine.written(ConfigKind::Pool, written).await;
    Ok(())
}
