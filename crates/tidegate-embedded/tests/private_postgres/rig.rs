//! Small things the tests of this crate share.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tidegate_embedded::Options;

/// A directory that the account of a dropped server may enter.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Self {
        let mode = std::fs::Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().permissions(mode).tempdir();
        Self(dir.unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A throwaway cluster in it that waits a little for an earlier owner to finish.
    pub fn options(&self) -> Options {
        Options::throwaway(self.path().join("pg"))
    }
}

pub async fn try_scalar(url: &str, sql: &'static str) -> Result<i32, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::query_scalar(sql).fetch_one(&mut connection).await
}

pub async fn scalar(url: &str, sql: &'static str) -> i32 {
    try_scalar(url, sql).await.unwrap()
}

pub async fn execute(url: &str, sql: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

pub fn kill9(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    kill(pid, Signal::SIGKILL).unwrap();
}

/// Polls with a deadline.
pub async fn eventually(mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(Instant::now() < deadline, "it never came to be");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
