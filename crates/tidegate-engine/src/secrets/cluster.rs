//! The secrets of the database as a whole: the record that tells a right key from a wrong one (R1.1), and the key of
//! body digests.

use secrecy::ExposeSecret as _;
use tidegate_store::{Store, catalog::Sealed, cluster::ClusterSecrets};

use super::{Keyring, Place, SecretError};

/// The text of the key-check record.
const CHECK: &[u8] = b"this database belongs to this key";

/// What the database's own secrets give.
#[derive(Clone)]
pub struct ClusterKeys {
    /// Keys the digests of bodies, the same for all instances and over all rotations.
    pub digest_key: [u8; 32],
}

impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterKeys").finish_non_exhaustive()
    }
}

pub(super) const fn place(column: &'static str) -> Place<'static> {
    Place {
        table: "cluster",
        row: "one",
        column,
    }
}

/// Opens the database's own secrets, making them where this is its first start. The first thing a server does with a
/// database: a wrong key is [`SecretError::WrongKey`], before anything else is read or served.
pub async fn open_cluster(store: &Store, keyring: &Keyring) -> Result<ClusterKeys, SecretError> {
    let mut secrets = store.cluster_secrets().await?;
    if secrets == ClusterSecrets::default() {
        let mut digest_key = [0; 32];
        getrandom::fill(&mut digest_key).map_err(|_| SecretError::NoRandomness)?;
        store
            .set_first_cluster_secrets(
                &keyring.seal(place("key_check"), CHECK)?,
                &keyring.seal(place("digest_key"), &digest_key)?,
            )
            .await?;
        // Another instance may have been first; whatever is there now counts.
        secrets = store.cluster_secrets().await?;
    }
    let (Some(check), Some(digest_key)) = (&secrets.key_check, &secrets.digest_key) else {
        return Err(SecretError::unreadable(place("digest_key")));
    };
    prove(keyring, check)?;
    let digest_key = keyring.open(place("digest_key"), digest_key)?;
    let digest_key = digest_key
        .expose_secret()
        .try_into()
        .map_err(|_| SecretError::unreadable(place("digest_key")))?;
    Ok(ClusterKeys { digest_key })
}

/// Refuses a key that is wrong for what the database already holds, before its schema is touched (R1.1).
pub async fn refuse_wrong_key(store: &Store, keyring: &Keyring) -> Result<(), SecretError> {
    match store.cluster_secrets_before_migration().await? {
        Some(ClusterSecrets {
            key_check: Some(check),
            ..
        }) => prove(keyring, &check),
        _ => Ok(()),
    }
}

/// What to say of a previous key that seals nothing here; nothing is wrong where none was given. It is left from a
/// rotation that is done, or the wrong one: the database cannot tell which, so that nobody is refused.
pub async fn idle_previous_key(
    store: &Store,
    keyring: &Keyring,
) -> Result<Option<String>, SecretError> {
    let Some(previous) = keyring.previous_id() else {
        return Ok(None);
    };
    let counts = store.sealed_counts().await?;
    let in_use: Vec<&str> = counts.iter().map(|count| count.key_id.as_str()).collect();
    Ok((!in_use.contains(&previous)).then(|| {
        format!(
            "CONFIG_ENC_KEY_PREVIOUS is key {previous}, and nothing in this database is sealed with it but with {}: take it \
             away if a rotation is done, else it is the wrong key",
            in_use.join(", ")
        )
    }))
}

fn prove(keyring: &Keyring, check: &Sealed) -> Result<(), SecretError> {
    let opened = keyring
        .open(place("key_check"), check)
        .map_err(|_| wrong(keyring, check))?;
    if opened.expose_secret() == CHECK {
        Ok(())
    } else {
        Err(wrong(keyring, check))
    }
}

fn wrong(keyring: &Keyring, check: &Sealed) -> SecretError {
    SecretError::WrongKey {
        sealed_with: check.key_id.clone(),
        current: keyring.current_id().to_owned(),
        previous: keyring.previous_id().map(str::to_owned),
    }
}
