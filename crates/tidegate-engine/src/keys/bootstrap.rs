//! The first key, made by whoever has access to the database (R2.1).

use secrecy::ExposeSecret as _;
use tidegate_model::{
    Code, KeyId,
    api::{CreatedKey, KeyGrants},
    principal::Role,
};
use tidegate_store::{
    Author, Store,
    keys::{InsertKey, NewKey},
};

use super::secret;
use crate::{Error, config_bus};

/// Makes the first super_admin key, once; `by` is the user of the operating system.
pub async fn bootstrap(store: &Store, by: &str) -> Result<CreatedKey, Error> {
    let (secret, hash) = secret::generate()?;
    let key = NewKey {
        key_id: KeyId::new(),
        hash,
        role: Role::SuperAdmin,
        tenant: None,
        pool: None,
        user: None,
        scopes: Vec::new(),
        grants: KeyGrants::default(),
        name: Some("bootstrap".to_owned()),
        expires_at: None,
    };
    let written = store
        .insert_bootstrap_key(key, &Author::shell(by))
        .await?
        .ok_or_else(|| {
            Error::refused(
                Code::StateConflict,
                "this database has had its first key; make further ones with that key and `tidegate key create`",
            )
        })?;
    if let Some(revision) = written.revision {
        config_bus::publish(store, revision).await;
    }
    match written.value {
        InsertKey::Stored(key) => Ok(CreatedKey {
            key: *key,
            secret: Some(secret.expose_secret().to_owned()),
        }),
        InsertKey::NoTenant | InsertKey::AlreadyExpired => Err(Error::Internal {
            what: "bootstrap key",
        }),
    }
}

/// Takes a first key back whose secret nobody has seen, so that another one can be made.
pub async fn take_back_bootstrap(store: &Store, by: &str, key: KeyId) -> Result<(), Error> {
    let revoked = store
        .take_back_bootstrap_key(key, &Author::shell(by))
        .await?;
    if let Some(revision) = revoked.revision {
        config_bus::publish(store, revision).await;
    }
    Ok(())
}
