//! Why a database was not migrated or is not served; each says what to do.

use crate::error::{Cause, SEARCH_PATH_REMEDY, sqlstate};

/// A refusal or failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The server is older than what the statements need.
    #[error(
        "PostgreSQL {found} is too old: Tidegate needs 15 or later; point CONFIG_DB_URL at a newer server"
    )]
    PostgresTooOld {
        /// What was found.
        found: String,
    },
    /// Texts of tenants would not fit.
    #[error(
        "the database has the encoding {found}: Tidegate needs UTF8; make another one with `createdb --encoding UTF8 \
         --template template0 NAME`, and name it in CONFIG_DB_URL"
    )]
    Encoding {
        /// What was found.
        found: String,
    },
    /// Tables have no place to be made in, or would be made among the database's own.
    #[error(
        "the search_path of this user ({search_path}) names no schema that tables can be made in"
    )]
    NoSchema {
        /// What is set.
        search_path: String,
    },
    /// A name that this server needs is another program's. Nothing was changed.
    #[error("the database has {name:?}, which is not Tidegate's; nothing was changed")]
    Foreign {
        /// The table, type or function.
        name: String,
    },
    /// The tables that are found are not where new ones would be made. Nothing was changed.
    #[error(
        "the tables of migrations are in the schema {found:?}, but the search_path of this user makes new ones in {makes:?}; \
         nothing was changed"
    )]
    Elsewhere {
        /// Where they are.
        found: String,
        /// Where new ones would go.
        makes: String,
    },
    /// A migration met a relation, type or function of the name of its own.
    #[error("migration {version} failed, nothing of it was kept: a name that it needs is taken")]
    Taken {
        /// Its number.
        version: i64,
        /// What the database said; it names the object.
        #[source]
        source: Cause,
    },
    /// Statements of one session would land on several.
    #[error(
        "CONFIG_DB_URL leads through a connection pooler in transaction mode, which migrations do not survive; give \
         `tidegate migrate` a direct connection (or the pooler's session mode)"
    )]
    Pooler,
    /// The database can only be read.
    #[error("the database is a read-only standby; point CONFIG_DB_URL at the primary")]
    Standby,
    /// TLS to the database failed: a certificate that is not trusted, or a server without TLS.
    #[error(
        "TLS to the database failed ({cause}); with sslmode=verify-full in CONFIG_DB_URL, sslrootcert must be the PEM \
         file of the authority that signed its certificate, and the host the name in it"
    )]
    Tls {
        /// What was wrong.
        cause: String,
    },
    /// The database belongs to a newer release.
    #[error("the database is too new for this server: {0}")]
    TooNew(String),
    /// The schema has not been made, or is behind this server.
    #[error(
        "the database lacks migrations {}; run `tidegate migrate`, or serve without --no-migrate",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Pending(Vec<i64>),
    /// A migration that was applied is not the one this server carries.
    #[error(
        "migration {version} was applied with another content than this server carries; restore the server that \
         applied it, or the database from before"
    )]
    Changed {
        /// Its number.
        version: i64,
    },
    /// A migration failed.
    #[error("migration {version} failed; nothing of it was kept")]
    Failed {
        /// Its number.
        version: i64,
        /// What the database said.
        #[source]
        source: Cause,
    },
    /// The database cannot be reached or refuses.
    #[error(transparent)]
    Store(#[from] crate::Error),
}

impl MigrateError {
    /// Whether the same call may work later without a change.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_unavailable())
    }
}

impl MigrateError {
    /// What an operator can do about it, where the error itself does not say.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.remedy(),
            Self::NoSchema { .. } => Some(SEARCH_PATH_REMEDY),
            Self::Elsewhere { .. } => Some(
                "put the schema of Tidegate's tables first (`ALTER ROLE user SET search_path = SCHEMA`), or give Tidegate a \
                 database of its own",
            ),
            Self::Foreign { .. } | Self::Taken { .. } => Some(
                "give Tidegate a database of its own (`createdb NAME`, named in CONFIG_DB_URL), or rename what is not its own",
            ),
            _ => None,
        }
    }
}

impl MigrateError {
    /// Why a migration was not applied.
    pub(super) fn of_migration(version: i64, error: sqlx::Error) -> Self {
        // A relation, a type or another object, a function.
        let taken = matches!(
            sqlstate(&error).as_deref(),
            Some("42P07" | "42710" | "42723")
        );
        let source = Cause::from(error);
        if taken {
            Self::Taken { version, source }
        } else {
            Self::Failed { version, source }
        }
    }
}

impl From<sqlx::Error> for MigrateError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Tls(cause) => Self::Tls {
                cause: cause.to_string(),
            },
            // The handshake itself reports what it refuses as an error of reading.
            sqlx::Error::Io(cause) if cause.kind() == std::io::ErrorKind::InvalidData => {
                Self::Tls {
                    cause: cause.to_string(),
                }
            }
            _ => Self::Store(error.into()),
        }
    }
}
