//! Sealing everything anew under the current key, row by row, while servers run (R1.8).
//!
//! Resumable by nature: what is sealed under the current key is done, whoever did it. The database's own secrets come
//! after all rows, so that as long as anything is left, a server without the previous key refuses to start. Servers seal
//! with the key of the database's own secrets: rows that were stored meanwhile are looked for once more after these.

use secrecy::ExposeSecret as _;
use tidegate_store::{
    Author, Store,
    secrets::{KeyCount, SealedRow, SealedTable},
};

use super::{Keyring, Place, SecretError, cluster::place};

/// Rows that are read at once.
const BATCH_ROWS: i64 = 100;

/// What a rotation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Envelopes that were closed anew by this very call.
    pub resealed: u64,
    /// What is sealed per key now, the current key included.
    pub counts: Vec<KeyCount>,
    /// Rows that neither key opens; they affect their users only.
    pub unreadable: Vec<UnreadableRow>,
    /// Whether `CONFIG_ENC_KEY_PREVIOUS` is no longer needed.
    pub complete: bool,
}

/// A row whose secret does not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRow {
    /// Its table.
    pub table: SealedTable,
    /// Its key.
    pub name: String,
    /// The key that closed it.
    pub key_id: String,
}

/// What is sealed, and what cannot be opened; for `doctor` and `secrets status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsStatus {
    /// The current key.
    pub current: String,
    /// What is sealed per key.
    pub counts: Vec<KeyCount>,
    /// Rows that neither key opens.
    pub unreadable: Vec<UnreadableRow>,
}

/// The place of a sealed row.
pub(crate) fn row_place(table: SealedTable, name: &str) -> Place<'_> {
    Place {
        table: table.as_str(),
        row: name,
        column: "sealed",
    }
}

/// How a secret is stored again where nothing opens it.
pub const fn stored_again(table: SealedTable) -> &'static str {
    match table {
        SealedTable::Providers => {
            "store it again with `tidegate provider set`; others are not affected"
        }
        SealedTable::ToolServers => {
            "store it again with `tidegate tool set`; others are not affected"
        }
        SealedTable::GrantKeys => {
            "`tidegate grant-key rotate` makes new ones; what was signed stays good"
        }
    }
}

/// What a rotation does about servers that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Servers {
    /// Each that lives must have the key that is rotated to.
    MustHaveKey {
        /// One that was not seen for this long is dead.
        dead_after_ms: i64,
    },
    /// They are known to be gone, or may fail.
    AreIgnored,
}

/// Seals everything anew under the current key. `progress` is told after each batch how much is done. A server without
/// that key could open nothing afterwards: while one lives, nothing is changed.
pub async fn rotate(
    store: &Store,
    keyring: &Keyring,
    author: &Author,
    servers: Servers,
    mut progress: impl FnMut(u64) + Send,
) -> Result<Rotation, SecretError> {
    if let Servers::MustHaveKey { dead_after_ms } = servers {
        let key = keyring.current_id();
        let servers = store.instances_without_key(key, dead_after_ms).await?;
        if !servers.is_empty() {
            let key = key.to_owned();
            return Err(SecretError::ServersWithoutKey { key, servers });
        }
    }
    let mut resealed = 0;
    reseal_rows(store, keyring, &mut resealed, &mut progress).await?;
    resealed += reseal_cluster(store, keyring).await?;
    let unreadable = reseal_rows(store, keyring, &mut resealed, &mut progress).await?;
    if resealed > 0 {
        store
            .record_rotation(keyring.current_id(), resealed, author)
            .await?;
    }
    let counts = store.sealed_counts().await?;
    // What nobody can open is no reason to keep the previous key.
    let lost = |key_id: &str| unreadable.iter().filter(|row| row.key_id == key_id).count();
    let complete = counts.iter().all(|count| {
        count.key_id == keyring.current_id()
            || usize::try_from(count.rows) == Ok(lost(&count.key_id))
    });
    Ok(Rotation {
        resealed,
        counts,
        unreadable,
        complete,
    })
}

/// Every row that is sealed otherwise; answers those that no key opens.
async fn reseal_rows(
    store: &Store,
    keyring: &Keyring,
    resealed: &mut u64,
    progress: &mut (impl FnMut(u64) + Send),
) -> Result<Vec<UnreadableRow>, SecretError> {
    let mut unreadable = Vec::new();
    for table in SealedTable::ALL {
        let mut after = String::new();
        loop {
            let rows = store
                .sealed_otherwise(table, keyring.current_id(), &after, BATCH_ROWS)
                .await?;
            let Some(last) = rows.last() else { break };
            after.clone_from(&last.name);
            for row in rows {
                match reseal(store, keyring, &row).await {
                    Ok(done) => *resealed += u64::from(done),
                    Err(error) if error.is_unreadable() => unreadable.push(UnreadableRow {
                        table,
                        name: row.name,
                        key_id: row.sealed.key_id,
                    }),
                    Err(error) => return Err(error),
                }
            }
            progress(*resealed);
        }
    }
    Ok(unreadable)
}

async fn reseal(store: &Store, keyring: &Keyring, row: &SealedRow) -> Result<bool, SecretError> {
    let place = row_place(row.table, &row.name);
    let open = keyring.open(place, &row.sealed)?;
    let anew = keyring.seal(place, open.expose_secret())?;
    // A row that somebody wrote in between is sealed under the current key already.
    Ok(store.reseal(row, &anew).await?)
}

async fn reseal_cluster(store: &Store, keyring: &Keyring) -> Result<u64, SecretError> {
    let before = store.cluster_secrets().await?;
    let (Some(check), Some(digest_key)) = (&before.key_check, &before.digest_key) else {
        return Ok(0);
    };
    let current = keyring.current_id();
    if check.key_id == current && digest_key.key_id == current {
        return Ok(0);
    }
    let anew = |column, sealed| {
        let open = keyring.open(place(column), sealed)?;
        keyring.seal(place(column), open.expose_secret())
    };
    let done = store
        .reseal_cluster_secrets(
            &before,
            &anew("key_check", check)?,
            &anew("digest_key", digest_key)?,
        )
        .await?;
    Ok(if done { 2 } else { 0 })
}

/// What is sealed per key, and every row that the keys at hand do not open.
pub async fn status(store: &Store, keyring: &Keyring) -> Result<SecretsStatus, SecretError> {
    let mut unreadable = Vec::new();
    for table in SealedTable::ALL {
        let mut after = String::new();
        loop {
            // No key has the empty id: every sealed row.
            let rows = store
                .sealed_otherwise(table, "", &after, BATCH_ROWS)
                .await?;
            let Some(last) = rows.last() else { break };
            after.clone_from(&last.name);
            for row in rows {
                if keyring
                    .open(row_place(table, &row.name), &row.sealed)
                    .is_err()
                {
                    unreadable.push(UnreadableRow {
                        table,
                        name: row.name,
                        key_id: row.sealed.key_id,
                    });
                }
            }
        }
    }
    Ok(SecretsStatus {
        current: keyring.current_id().to_owned(),
        counts: store.sealed_counts().await?,
        unreadable,
    })
}
