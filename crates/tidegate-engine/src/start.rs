//! The first things a server does with a database that is migrated: prove that the key is the right one, learn which
//! history this is, publish what the built-in executor offers.

use std::sync::Arc;

use tidegate_model::InstanceId;
use tidegate_store::Store;

use crate::{
    Engine, EngineParts, Error,
    secrets::{self, Keyring, SecretError},
    settings::Settings,
};

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// `CONFIG_ENC_KEY` is not the key of this database: a configuration error (exit code 2).
    #[error(transparent)]
    WrongKey(SecretError),
    /// Anything else.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Engine {
    /// Starts an engine on a migrated database. The key is checked before anything else is read (R1.1), and the
    /// generation of fences is in place before anybody can claim (R4.7).
    pub async fn start(
        settings: Arc<Settings>,
        store: Store,
        keyring: Keyring,
        instance: InstanceId,
    ) -> Result<Self, StartError> {
        let cluster =
            secrets::open_cluster(&store, &keyring)
                .await
                .map_err(|error| match error {
                    SecretError::Store(error) => StartError::Engine(error.into()),
                    wrong => StartError::WrongKey(wrong),
                })?;
        let engine = Self::new(EngineParts {
            settings,
            store,
            instance,
            digest_key: cluster.digest_key,
            keyring,
        });
        engine.observe_generation().await?;
        crate::pools::ensure_builtin(&engine).await?;
        crate::grants::ensure_first(&engine).await?;
        let last = engine.store().last_revision().await.map_err(Error::from)?;
        engine.platform().bus.serve(last);
        crate::instances::heartbeat::beat(&engine).await?;
        Ok(engine)
    }
}
