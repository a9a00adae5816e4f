//! What can go wrong in the database, as far as a caller can act on it.

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be reached, is starting or stopping, is full, or is read-only: the same call may work later.
    #[error("the database is not available")]
    Unavailable(#[source] sqlx::Error),
    /// A constraint of the schema refused a write; `constraint` names it.
    #[error("the database refused a write ({constraint})")]
    Refused {
        /// The constraint's name.
        constraint: String,
        /// What the database said.
        #[source]
        source: sqlx::Error,
    },
    /// A value that was stored cannot be read as what it should be.
    #[error("stored value of {what} cannot be read")]
    Corrupt {
        /// Which column or contract.
        what: &'static str,
    },
    /// A statement changed another number of rows than it must.
    #[error("{statement} changed {changed} rows in place of {expected}")]
    RowCount {
        /// The statement.
        statement: &'static str,
        /// What was expected.
        expected: u64,
        /// What happened.
        changed: u64,
    },
    /// Anything else: a defect.
    #[error("database error")]
    Database(#[source] sqlx::Error),
}

impl Error {
    /// Whether the same call may work later without a change.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// What a failpoint of a test injects: the connection was lost.
    #[cfg_attr(
        not(feature = "failpoints"),
        expect(dead_code, reason = "failpoints are off")
    )]
    pub(crate) fn injected() -> Self {
        Self::Unavailable(sqlx::Error::WorkerCrashed)
    }

    /// Whether the transaction lost against another one and is to be run again.
    pub(crate) fn is_serialization(&self) -> bool {
        let (Self::Database(source) | Self::Unavailable(source) | Self::Refused { source, .. }) =
            self
        else {
            return false;
        };
        matches!(sqlstate(source).as_deref(), Some("40001" | "40P01"))
    }
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .map(|code| code.to_string())
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        if let Some(database) = source.as_database_error() {
            let code = database.code().unwrap_or_default().to_string();
            // 08 connection, 53 insufficient resources (disk full, too many connections), 57P0x shutdown and
            // crash, 25006 read-only.
            let unavailable = ["08", "53"].iter().any(|class| code.starts_with(class))
                || matches!(
                    code.as_str(),
                    "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "25P03" | "58030"
                );
            if unavailable {
                return Self::Unavailable(source);
            }
            // Class 23: integrity constraints.
            if code.starts_with("23") {
                let constraint = database.constraint().unwrap_or("unnamed").to_owned();
                return Self::Refused { constraint, source };
            }
            return Self::Database(source);
        }
        match source {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Self::Unavailable(source),
            other => Self::Database(other),
        }
    }
}

/// Reads a stored text as its enum or id.
pub(crate) fn stored<T: std::str::FromStr>(text: &str, what: &'static str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Corrupt { what })
}
