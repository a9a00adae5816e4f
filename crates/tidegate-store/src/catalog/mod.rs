//! Providers, models and tool servers. Sealed columns pass through as bytes; only the engine's keyring opens them.

pub mod models;
pub mod providers;
pub mod tool_servers;
pub mod tool_states;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::{ConfigKind, ids::CatalogName};

use crate::{
    Error,
    repeats::Outcome,
    written::{Author, Record, record},
};

pub use models::StoredModel;
pub use providers::StoredProvider;
pub use tool_servers::StoredToolServer;
pub use tool_states::ToolServerReport;

/// A secret at rest: the envelope and the key that closed it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The AEAD envelope, bound to table, row and column.
    pub envelope: Vec<u8>,
    /// The id of the key.
    pub key_id: String,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed")
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

/// What a write does to the secret of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretChange {
    /// The stored one stays.
    Keep,
    /// There is none any more.
    Remove,
    /// This one takes its place.
    Set(Sealed),
}

impl SecretChange {
    fn parts(&self) -> (bool, Option<&[u8]>, Option<&str>) {
        match self {
            Self::Keep => (true, None, None),
            Self::Remove => (false, None, None),
            Self::Set(sealed) => (false, Some(&sealed.envelope), Some(&sealed.key_id)),
        }
    }

    /// What the audit log says of it.
    const fn audited(&self) -> &'static str {
        match self {
            Self::Keep => "unchanged",
            Self::Remove => "removed",
            Self::Set(_) => "replaced",
        }
    }
}

/// What came of a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delete {
    /// It is gone.
    Deleted,
    /// There was none of that name.
    NotFound,
    /// These still use it.
    Used(Vec<String>),
}

impl Outcome for Delete {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Deleted)
    }
}

/// One write to the catalogue, for the log.
struct Entry<'a> {
    kind: ConfigKind,
    action: &'static str,
    name: &'a CatalogName,
    before: Value,
    after: Value,
}

async fn log(tx: &mut PgConnection, author: &Author, entry: Entry<'_>) -> Result<i64, Error> {
    record(
        tx,
        Record {
            author,
            kind: entry.kind,
            action: entry.action,
            subject: entry.name.as_str(),
            tenant: None,
            before: entry.before,
            after: entry.after,
        },
    )
    .await
}
