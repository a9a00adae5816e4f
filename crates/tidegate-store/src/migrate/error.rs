//! Why a database was not migrated or is not served; each says what to do.

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
        source: crate::error::Cause,
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
            _ => None,
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
