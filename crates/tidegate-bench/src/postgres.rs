//! The PostgreSQL that everybody is measured on.

use std::{
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicU32, Ordering},
};

use tidegate_embedded::{Cluster, Listen, Options};
use tokio_postgres::{Client, NoTls};

use crate::accounts;

/// Besides PostgreSQL's own guarantees, which stay on. Sized for a machine of a few GiB; printed with the results.
const SETTINGS: [(&str, &str); 7] = [
    ("shared_buffers", "1GB"),
    ("max_wal_size", "4GB"),
    ("max_connections", "200"),
    ("autovacuum_naptime", "10s"),
    ("checkpoint_timeout", "15min"),
    ("shared_preload_libraries", "pg_stat_statements"),
    // Switched on for the profile alone.
    ("pg_stat_statements.track", "none"),
];

/// A server with databases of single measurements.
#[derive(Debug)]
pub struct Postgres {
    cluster: Cluster,
    dir: tempfile::TempDir,
    next: AtomicU32,
}

impl Postgres {
    /// Starts one in a directory of its own, which goes with it.
    pub async fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("tidegate-bench-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("a directory below TMPDIR");
        let mut options = Options::new(dir.path().join("pg"));
        options.listen = Listen::Tcp { port: None };
        for (name, value) in SETTINGS {
            options = options.setting(name, value);
        }
        let cluster = Cluster::start(options).await;
        Self {
            cluster: cluster.unwrap_or_else(|error| panic!("no database to measure on: {error}")),
            dir,
            next: AtomicU32::new(1),
        }
    }

    /// A new database; its address.
    pub async fn fresh(&self) -> String {
        let name = format!("bench_{}", self.next.fetch_add(1, Ordering::Relaxed));
        self.cluster
            .create_database(&name)
            .await
            .unwrap_or_else(|error| panic!("no database to measure on: {error}"));
        self.cluster.url(&name)
    }

    /// Drops a database that [`Self::fresh`] has made.
    pub async fn drop(&self, url: &str) {
        let name = url.rsplit('/').next().unwrap_or_default();
        let dropped = self.cluster.drop_database(name).await;
        dropped.unwrap_or_else(|error| panic!("the database {name} is not dropped: {error}"));
    }

    /// CPU seconds that the server has used so far.
    pub fn cpu_s(&self) -> f64 {
        self.cluster.pid().map_or(0.0, accounts::server_cpu_s)
    }

    /// What was set, for the heading of the results.
    pub fn settings() -> String {
        let set: Vec<String> = SETTINGS
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!("fsync=on synchronous_commit=on {}", set.join(" "))
    }

    /// Its version.
    pub fn version(&self) -> &str {
        self.cluster.version()
    }

    /// Stops it and removes its directory.
    pub async fn stop(self) {
        let stopped = self.cluster.stop().await;
        stopped.unwrap_or_else(|error| panic!("the database does not stop: {error}"));
        self.dir.close().expect("its directory is ours");
    }
}

/// A connection; it is driven in the background until it is dropped.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .unwrap_or_else(|error| panic!("no connection: {error}"));
    tokio::spawn(connection);
    client
}

/// The same number for everybody before the clock starts: statistics are fresh, and no write-back is owed.
pub async fn quiesce(url: &str) {
    let client = connect(url).await;
    for statement in ["VACUUM ANALYZE", "CHECKPOINT"] {
        client.batch_execute(statement).await.expect(statement);
    }
}

/// One number.
pub async fn number(client: &Client, sql: &str) -> i64 {
    let row = client.query_one(sql, &[]).await;
    row.unwrap_or_else(|error| panic!("{sql}: {error}")).get(0)
}
