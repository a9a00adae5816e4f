//! Secrets at rest: sealed under `CONFIG_ENC_KEY`, bound to their row, readable by whoever holds the right key (R1.8).
//!
//! Not done here: handing opened provider keys to anybody but `tidegate-llm`; see [`crate::catalog::resolved`].

mod cluster;
mod keyring;
mod rotate;

pub use cluster::{ClusterKeys, idle_previous_key, open_cluster, refuse_wrong_key};
pub use keyring::{Keyring, Place};
pub(crate) use rotate::row_place;
pub use rotate::{Rotation, SecretsStatus, Servers, UnreadableRow, rotate, status, stored_again};

use tidegate_store::{catalog::Sealed, instances::WithoutKey};

use crate::{Engine, Error};

/// What is wrong with a key or a sealed secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// A key is not one.
    #[error(
        "{variable} must be 32 random bytes in base64, found {found}; make one with `openssl rand -base64 32`"
    )]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// What it holds, without the value.
        found: String,
    },
    /// One key is given as the current and as the previous one.
    #[error(
        "CONFIG_ENC_KEY_PREVIOUS holds the same key as CONFIG_ENC_KEY ({key}); to rotate, put the key that was used before \
         there; else leave it out"
    )]
    SameKey {
        /// The id of that key.
        key: String,
    },
    /// The key is not the one that sealed what this database holds.
    #[error("{}", wrong_key(sealed_with, current, previous.as_deref()))]
    WrongKey {
        /// The id of the key that the database was sealed with.
        sealed_with: String,
        /// The id of the configured key.
        current: String,
        /// The id of the key before, where one was given; it is wrong too.
        previous: Option<String>,
    },
    /// Secrets are sealed with a key that this server was not given: it was rotated to while the server ran.
    #[error(
        "secrets are sealed with key {in_force} now, which this server does not have; restart it with that key as \
         CONFIG_ENC_KEY"
    )]
    KeyReplaced {
        /// The id of that key.
        in_force: String,
    },
    /// Servers run that would be shut out by a rotation. Nothing was changed.
    #[error(
        "these servers run without key {key}, so nothing was changed: {}",
        named(servers)
    )]
    ServersWithoutKey {
        /// The id of the key to rotate to.
        key: String,
        /// The servers.
        servers: Vec<WithoutKey>,
    },
    /// A secret was sealed with a key that is not at hand.
    #[error(
        "the secret {column} of {table} {row} was sealed with key {sealed_with}, which this server does not have; \
         restart it with that key as CONFIG_ENC_KEY, or store the secret again if the key is lost"
    )]
    WithoutKey {
        /// The table.
        table: String,
        /// The row.
        row: String,
        /// The column.
        column: String,
        /// The id of the key.
        sealed_with: String,
    },
    /// A sealed secret does not open, although its key is at hand.
    #[error(
        "the secret {column} of {table} {row} was damaged and cannot be opened; store it again"
    )]
    Unreadable {
        /// The table.
        table: String,
        /// The row.
        row: String,
        /// The column.
        column: String,
    },
    /// The machine has no randomness to give.
    #[error("the system gave no random bytes")]
    NoRandomness,
    /// The database did not do its part.
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
}

impl SecretError {
    pub(crate) fn unreadable(place: Place<'_>) -> Self {
        Self::Unreadable {
            table: place.table.to_owned(),
            row: place.row.to_owned(),
            column: place.column.to_owned(),
        }
    }

    pub(crate) fn without_key(place: Place<'_>, sealed_with: &str) -> Self {
        Self::WithoutKey {
            table: place.table.to_owned(),
            row: place.row.to_owned(),
            column: place.column.to_owned(),
            sealed_with: sealed_with.to_owned(),
        }
    }

    /// Whether it says that a sealed secret does not open, whatever the reason.
    const fn is_unreadable(&self) -> bool {
        matches!(self, Self::WithoutKey { .. } | Self::Unreadable { .. })
    }
}

fn wrong_key(sealed_with: &str, current: &str, previous: Option<&str>) -> String {
    let sealed = format!("its secrets were sealed with key {sealed_with}");
    match previous {
        None => format!(
            "CONFIG_ENC_KEY is not the key of this database: {sealed}, this is {current}; set the key that was used \
             before, or put it into CONFIG_ENC_KEY_PREVIOUS to rotate"
        ),
        Some(previous) => format!(
            "CONFIG_ENC_KEY_PREVIOUS is not the key of this database, and neither is CONFIG_ENC_KEY: {sealed}, these \
             are {previous} and {current}; put the key that was used before into CONFIG_ENC_KEY_PREVIOUS"
        ),
    }
}

fn named(servers: &[WithoutKey]) -> String {
    let names: Vec<String> = servers
        .iter()
        .map(|server| format!("{} (version {})", server.instance, server.version))
        .collect();
    names.join(", ")
}

/// Seals what an administrator stores, so that every server that may run can open it. The key in force is asked for each
/// time: a rotation may have come since the last heartbeat.
pub(crate) async fn seal_for_all(
    engine: &Engine,
    place: Place<'_>,
    secret: &[u8],
) -> Result<Sealed, Error> {
    let check = engine.store().cluster_secrets().await?.key_check;
    let in_force = check.ok_or_else(|| SecretError::unreadable(cluster::place("key_check")))?;
    let keyring = &engine.platform().keyring;
    Ok(keyring.seal_in_force(&in_force.key_id, place, secret)?)
}

impl From<SecretError> for Error {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Store(error) => Self::Store(error),
            SecretError::NoRandomness => Self::Internal {
                what: "no randomness",
            },
            other => Self::refused(tidegate_model::Code::SecretUnreadable, other.to_string()),
        }
    }
}
