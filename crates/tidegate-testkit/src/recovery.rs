//! Databases as they are after a disaster: restored from a dump, or on a promoted standby.

use std::sync::Arc;

use tokio::process::Command;

use crate::pg::{TestCluster, TestDb, tuned};
use crate::scratch;

impl TestCluster {
    /// A hot standby that follows this server, until its `cluster().promote()`.
    pub async fn standby(&self) -> Arc<Self> {
        let dir = scratch::directory("pg").join("pg");
        Self::launch(tuned(self.cluster().standby_options(dir))).await
    }
}

impl TestDb {
    /// What is in it now, restored from a dump into another database.
    pub async fn restored_from_dump(&self) -> Self {
        let restored = self.server().empty_db().await;
        let file = scratch::directory("dump").join("dump");
        let file = file.to_str().expect("a path in UTF-8");
        let (from, to) = (self.url(), restored.url());
        self.client("pg_dump", &["--format=custom", "--file", file, &from])
            .await;
        self.client("pg_restore", &["--exit-on-error", "--dbname", &to, file])
            .await;
        restored
    }

    /// The database of the same name on a standby of its server.
    #[must_use]
    pub fn on(&self, standby: &Arc<TestCluster>) -> Self {
        Self::open(standby, self.name().to_owned())
    }

    async fn client(&self, program: &str, args: &[&str]) {
        let program = self.server().cluster().binaries().program(program);
        let output = Command::new(&program).args(args).output().await;
        let output =
            output.unwrap_or_else(|error| panic!("{} does not run: {error}", program.display()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", program.display());
    }
}
