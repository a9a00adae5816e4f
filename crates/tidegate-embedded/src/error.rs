//! What can go wrong between "I want a database" and "here is its address".

use std::path::PathBuf;

/// Every refusal names what was looked at and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// None of the usual places holds PostgreSQL.
    #[error(
        "no PostgreSQL {wanted} found ({looked}); install it with `apt-get install postgresql`, \
         or run `make setup` (which needs no root), or set PG_BIN to a directory that holds \
         `postgres` and `initdb`"
    )]
    NotFound {
        /// Which versions would do: `15 or newer`, or the one that made the existing data.
        wanted: String,
        /// The places and why each was passed over.
        looked: String,
    },
    /// A directory that the caller named does not serve.
    #[error("{origin} points at {}, which does not serve: {reason}", dir.display())]
    Unusable {
        /// Which setting named the directory.
        origin: &'static str,
        /// The directory.
        dir: PathBuf,
        /// What is missing, and the remedy.
        reason: String,
    },
    /// Another process owns this cluster.
    #[error(
        "another Tidegate (process {owner}) already runs the database in {}; stop it, or give \
         this one a directory of its own with --data-dir",
        dir.display()
    )]
    Owned {
        /// The cluster directory.
        dir: PathBuf,
        /// What the lock file says about the owner.
        owner: String,
    },
    /// The directory holds something else.
    #[error(
        "{} is not empty and was not made by Tidegate (it has no tidegate-cluster.json); \
         give an empty or new directory with --data-dir",
        dir.display()
    )]
    NotOurs {
        /// The directory.
        dir: PathBuf,
    },
    /// The account that shall run PostgreSQL cannot reach or own the directory.
    #[error("{}: {reason}", path.display())]
    Access {
        /// The path that is in the way.
        path: PathBuf,
        /// What is wrong and the remedy.
        reason: String,
    },
    /// Root without any account to drop to.
    #[error(
        "PostgreSQL refuses to run as root and {reason}; create one with `useradd --system tidegate`"
    )]
    NoAccount {
        /// Which account was looked for.
        reason: String,
    },
    /// A name that is no database name.
    #[error("`{name}` is no database name here: use 1 to 63 of a-z, 0-9, `_` and `-`")]
    DatabaseName {
        /// The name as given.
        name: String,
    },
    /// `initdb` or `pg_basebackup` failed.
    #[error("no cluster could be made in {}: {output}", dir.display())]
    NotMade {
        /// The cluster directory.
        dir: PathBuf,
        /// The end of its output.
        output: String,
    },
    /// PostgreSQL ended, or did not become ready in time.
    #[error("PostgreSQL did not start: {why}; the end of {}: {tail}", log.display())]
    NotStarted {
        /// Exit status or time-out.
        why: String,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// What an earlier owner left running does not go away.
    #[error(
        "process {pid} of an earlier PostgreSQL still uses {} and does not end; \
         stop it with `kill -9 {pid}`",
        dir.display()
    )]
    Leftover {
        /// A process that is in the way.
        pid: i32,
        /// The data directory.
        dir: PathBuf,
    },
    /// The cluster was stopped; start another.
    #[error("this database cluster has been stopped")]
    Stopped,
    /// A file operation failed.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// An operation of the system that names no path.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's word.
        source: std::io::Error,
    },
    /// PostgreSQL refused an administrative statement.
    #[error("PostgreSQL refused to {what}")]
    Sql {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        source: sqlx::Error,
    },
}

/// Adds "what was tried on which path" to an I/O error.
pub(crate) trait AtPath<T> {
    fn at(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, EmbeddedError>;
}

impl<T> AtPath<T> for std::io::Result<T> {
    fn at(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, EmbeddedError> {
        self.map_err(|source| EmbeddedError::File {
            what,
            path: path.into(),
            source,
        })
    }
}
