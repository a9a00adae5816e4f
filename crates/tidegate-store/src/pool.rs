//! Connections: how many, with which session settings, and how long to try.

use std::{str::FromStr, time::Duration};

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{Error, cluster};

/// How to connect.
#[derive(Clone)]
pub struct ConnectOptions {
    /// `postgres://…`; `sslmode` and `sslrootcert` as usual (R1.10).
    pub url: String,
    /// The most connections of this process.
    pub max_connections: u32,
    /// The longest wait for a free connection.
    pub acquire_timeout: Duration,
    /// A session that idles inside a transaction longer than this is ended by the database.
    pub idle_in_transaction: Duration,
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
    /// Older connections are replaced when they come back to the pool, and their plans with them.
    pub max_age: Duration,
}

impl std::fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// The usual settings for a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            max_connections: 16,
            acquire_timeout: Duration::from_secs(5),
            idle_in_transaction: Duration::from_secs(10),
            application_name: "tidegate".to_owned(),
            max_age: Duration::from_mins(1),
        }
    }

    fn parse(&self) -> Result<PgConnectOptions, Error> {
        let idle = format!("{}ms", self.idle_in_transaction.as_millis());
        Ok(PgConnectOptions::from_str(&self.url)?
            .application_name(&self.application_name)
            .options([
                ("idle_in_transaction_session_timeout", idle.as_str()),
                ("timezone", "UTC"),
                ("plan_cache_mode", "force_generic_plan"),
                // A plan outlives what was known of a table when it was made: an empty one is then read whole for ever.
                ("enable_seqscan", "off"),
                ("jit", "off"),
                // Not what a database or a role was given for others.
                ("default_transaction_isolation", "read committed"),
                ("statement_timeout", "0"),
                ("lock_timeout", "0"),
                // The listener waits for hours without a statement, and the pool keeps what it has.
                ("idle_session_timeout", "0"),
            ]))
    }
}

/// Opens a pool; the first connection is made when it is needed.
///
/// Each new connection looks at the database's identity before anything else happens on it. A promotion or a restore
/// breaks every session, so that the generation of fences has risen before a claim can reach the other history (R4.7).
///
/// A connection plans each statement once: for the arrays of a batch PostgreSQL else prefers to plan anew at every call,
/// which took longer than the calls (docs/benchmarks.md). What needs its parameters for its plan says so
/// ([`Store::planned_read`](crate::Store)). A plan is as good as what was known of the tables when it was made; it goes with
/// its connection, after a minute, whether or not autovacuum has looked at them since.
///
/// The pool does not ping before each use: that costs a round trip per statement, and a dead connection shows itself by
/// the error of the statement, which callers treat as [`Error::Unavailable`].
pub fn connect(options: &ConnectOptions) -> Result<PgPool, Error> {
    Ok(PgPoolOptions::new()
        .max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        .test_before_acquire(false)
        .max_lifetime(options.max_age)
        .after_connect(|connection, _| Box::pin(cluster::on_connect(connection)))
        .connect_lazy_with(options.parse()?))
}
