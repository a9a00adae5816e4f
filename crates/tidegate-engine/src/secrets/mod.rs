//! Secrets at rest: sealed under `CONFIG_ENC_KEY`, bound to their row, readable by whoever holds the right key (R1.8).
//!
//! Not done here: handing opened provider keys to anybody but `tidegate-llm`; see [`crate::catalog::resolved`].

mod cluster;
mod keyring;
mod rotate;

pub use cluster::{ClusterKeys, open_cluster, refuse_wrong_key};
pub use keyring::{Keyring, Place};
pub(crate) use rotate::row_place;
pub use rotate::{Rotation, SecretsStatus, UnreadableRow, rotate, status};

use crate::Error;

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
    /// The key is not the one that sealed what this database holds.
    #[error(
        "CONFIG_ENC_KEY is not the key of this database: its secrets were sealed with key {sealed_with}, this is \
         {current}; set the key that was used before, or put it into CONFIG_ENC_KEY_PREVIOUS to rotate"
    )]
    WrongKey {
        /// The id of the key that the database was sealed with.
        sealed_with: String,
        /// The id of the configured key.
        current: String,
    },
    /// A sealed secret does not open.
    #[error(
        "the secret {column} of {table} {row} cannot be opened with the configured keys; store it again"
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
