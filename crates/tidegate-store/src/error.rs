//! What can go wrong in the database, as far as a caller can act on it.

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be reached, is starting or stopping, is full, is read-only, or gave up the statement for another
    /// one: the same call may work later.
    #[error("the database is not available")]
    Unavailable(#[source] Cause),
    /// A constraint of the schema refused a write; `constraint` names it.
    #[error("the database refused a write ({constraint})")]
    Refused {
        /// The constraint's name.
        constraint: String,
        /// What the database said.
        #[source]
        source: Cause,
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
    /// The idempotency key was used with another request.
    #[error("the idempotency key was used with another request")]
    IdempotencyConflict,
    /// Anything else: a defect.
    #[error("database error")]
    Database(#[source] Cause),
}

/// What to do where tables have no schema to stand in.
pub(crate) const SEARCH_PATH_REMEDY: &str = "make the schema and let the user of CONFIG_DB_URL use it, or take one that \
                                             is there: `ALTER ROLE user SET search_path = public`, or ALTER DATABASE \
                                             where that sets it";

/// What the database or the driver said, for people: without the driver's own preface, and without the line of
/// PostgreSQL's source that it would add.
#[derive(Debug)]
pub struct Cause(sqlx::Error);

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            sqlx::Error::Database(error) => match error.code() {
                Some(code) => write!(f, "{} (SQLSTATE {code})", error.message()),
                None => f.write_str(error.message()),
            },
            sqlx::Error::Io(error) => error.fmt(f),
            sqlx::Error::PoolTimedOut => f.write_str("no connection came free in time"),
            sqlx::Error::WorkerCrashed => f.write_str("the connection broke off"),
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            sqlx::Error::Database(_) | sqlx::Error::Io(_) => None,
            other => other.source(),
        }
    }
}

impl From<sqlx::Error> for Cause {
    fn from(error: sqlx::Error) -> Self {
        Self(error)
    }
}

impl Error {
    /// Whether the same call may work later without a change.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// What an operator can do about it, where what the database or the system said tells.
    pub fn remedy(&self) -> Option<&'static str> {
        let (Self::Database(Cause(source)) | Self::Unavailable(Cause(source))) = self else {
            return None;
        };
        if is_refused_parameter(source) {
            return Some(
                "this is a PgBouncer: let it have `ignore_startup_parameters = extra_float_digits, options` \
                 (docs/how-to/use-a-pooler.md)",
            );
        }
        match (source, sqlstate(source).as_deref()) {
            (_, Some("28P01" | "28000")) => Some(
                "correct user and password in CONFIG_DB_URL, or let them in by the server's pg_hba.conf",
            ),
            (_, Some("3D000")) => {
                Some("make the database (`createdb NAME`), or correct its name in CONFIG_DB_URL")
            }
            (_, Some("3F000")) => Some(SEARCH_PATH_REMEDY),
            (_, Some("42501")) => Some("let the user of CONFIG_DB_URL own the database"),
            (_, Some("53300")) => Some(
                "raise max_connections of PostgreSQL, or lower TIDEGATE_DB_POOL_SIZE of the servers",
            ),
            (_, Some("53100")) => Some("make room on the disk of PostgreSQL"),
            (_, Some("25006")) => {
                Some("point CONFIG_DB_URL at the primary: this one can only be read")
            }
            (_, Some("57P01" | "57P02" | "57P03")) => {
                Some("PostgreSQL is starting or stopping: try again in a moment")
            }
            (sqlx::Error::PoolTimedOut, _) => Some(
                "all connections of this server were in use, or new ones could not be made in time: raise \
                 TIDEGATE_DB_POOL_SIZE, send this server less, or look for what keeps PostgreSQL busy",
            ),
            (sqlx::Error::Io(cause), _) => Some(match cause.kind() {
                std::io::ErrorKind::NotFound => {
                    "check that PostgreSQL runs and that its socket is where CONFIG_DB_URL says"
                }
                std::io::ErrorKind::TimedOut => {
                    "check host and port of CONFIG_DB_URL and the network in between"
                }
                _ => "check that PostgreSQL runs and that CONFIG_DB_URL names its host and port",
            }),
            _ => None,
        }
    }

    /// What a failpoint of a test injects: the connection was lost.
    #[cfg_attr(
        not(feature = "failpoints"),
        expect(dead_code, reason = "failpoints are off")
    )]
    pub(crate) fn injected() -> Self {
        Self::Unavailable(sqlx::Error::WorkerCrashed.into())
    }

    /// Whether the transaction lost against another one and is to be run again.
    pub(crate) fn is_serialization(&self) -> bool {
        matches!(self.sqlstate().as_deref(), Some("40001" | "40P01"))
    }

    /// Whether a row with the same key was there.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.sqlstate().as_deref() == Some("23505")
    }

    fn sqlstate(&self) -> Option<String> {
        let (Self::Database(Cause(source))
        | Self::Unavailable(Cause(source))
        | Self::Refused {
            source: Cause(source),
            ..
        }) = self
        else {
            return None;
        };
        sqlstate(source)
    }
}

/// PgBouncer does not let every start-up parameter pass, in the class of broken connections; it never will by itself.
fn is_refused_parameter(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.message().contains("unsupported startup parameter"))
}

pub(crate) fn sqlstate(error: &sqlx::Error) -> Option<String> {
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
            // crash, 25006 read-only; 40 lost against another transaction, 55P03 a lock, 57014 cancelled from outside.
            let unavailable = ["08", "40", "53"]
                .iter()
                .any(|class| code.starts_with(class))
                || matches!(
                    code.as_str(),
                    "57014"
                        | "57P01"
                        | "57P02"
                        | "57P03"
                        | "57P05"
                        | "25006"
                        | "25P03"
                        | "55P03"
                        | "58030"
                );
            if unavailable && !is_refused_parameter(&source) {
                return Self::Unavailable(source.into());
            }
            // Class 23: integrity constraints.
            if code.starts_with("23") {
                let constraint = database.constraint().unwrap_or("unnamed").to_owned();
                return Self::Refused {
                    constraint,
                    source: source.into(),
                };
            }
            return Self::Database(source.into());
        }
        match source {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Self::Unavailable(source.into()),
            other => Self::Database(other.into()),
        }
    }
}

/// Reads a stored text as its enum or id.
pub(crate) fn stored<T: std::str::FromStr>(text: &str, what: &'static str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Corrupt { what })
}
