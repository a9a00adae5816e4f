//! The first key, made by whoever has access to the database, and one in its place when its secret is lost (R2.1).

use secrecy::{ExposeSecret as _, SecretString};
use tidegate_model::{
    Code, KeyId,
    api::{CreatedKey, KeyGrants},
    principal::Role,
};
use tidegate_store::{
    Author, Store, Written,
    keys::{InsertKey, NewKey},
};

use super::secret;
use crate::{Error, config_bus};

/// Makes the first super_admin key, once; `by` is the user of the operating system.
pub async fn bootstrap(store: &Store, by: &str) -> Result<CreatedKey, Error> {
    let (secret, key) = operator_key("bootstrap")?;
    let written = store
        .insert_bootstrap_key(key, &Author::shell(by))
        .await?
        .ok_or_else(|| {
            Error::refused(
                Code::StateConflict,
                "this database has had its first key; make further ones with that key and `tidegate key create`, or, where \
                 its secret is lost, one with `tidegate key bootstrap --recover`",
            )
        })?;
    shown(store, written, &secret).await
}

/// Makes a super_admin key besides those there are, for whoever has proved to hold the key of the database's secrets; `by`
/// is the user of the operating system.
pub async fn recover(store: &Store, by: &str) -> Result<CreatedKey, Error> {
    if !store.has_bootstrap_key().await? {
        return Err(Error::refused(
            Code::StateConflict,
            "this database has had no first key that could be lost; make it with `tidegate key bootstrap`",
        ));
    }
    let (secret, key) = operator_key("recovery")?;
    let written = store.insert_key(key, &Author::shell(by)).await?;
    shown(store, written, &secret).await
}

/// A key that administers the platform and does not expire, with its secret.
fn operator_key(name: &str) -> Result<(SecretString, NewKey), Error> {
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
        name: Some(name.to_owned()),
        expires_at: None,
    };
    Ok((secret, key))
}

async fn shown(
    store: &Store,
    written: Written<InsertKey>,
    secret: &SecretString,
) -> Result<CreatedKey, Error> {
    if let Some(revision) = written.revision {
        config_bus::publish(store, revision).await;
    }
    match written.value {
        InsertKey::Stored(key) => Ok(CreatedKey {
            key: *key,
            secret: Some(secret.expose_secret().to_owned()),
        }),
        InsertKey::NoTenant | InsertKey::AlreadyExpired => Err(Error::Internal {
            what: "key of an operator",
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
