//! Starting `tidegate` and reading what it says.

use std::{path::PathBuf, process::ExitStatus, time::Duration};

use serde_json::Value;
use tidegate_testkit::{Proc, Running, TestDb, proc::tidegate};

/// 32 bytes, base64: keys for tests only.
pub const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub const OTHER_KEY: &str = "Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";
/// The longest a command may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// A command that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Its answer, which must be one JSON document.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert!(self.status.success(), "{}\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn failed_with(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{}\n{}", self.stdout, self.stderr);
        self
    }
}

/// Runs a command to its end. It runs far from any configuration file of this machine.
pub async fn run(proc: Proc) -> Ended {
    run_where_it_is(proc.current_dir(&std::env::temp_dir())).await
}

/// Runs a command to its end in the directory that it has.
pub async fn run_where_it_is(proc: Proc) -> Ended {
    let mut running = proc.start();
    let status = running.wait(PATIENCE).await;
    Ended {
        status,
        stdout: running.stdout(),
        stderr: running.stderr(),
    }
}

/// Asks again and again until it holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// `tidegate ARGS` with a database and a key.
pub fn with_database(db: &TestDb, args: &[&str]) -> Proc {
    Proc::tidegate(args)
        .env("CONFIG_DB_URL", db.url())
        .env("CONFIG_ENC_KEY", KEY)
}

/// A server on a free port.
pub fn serve(db: &TestDb) -> Proc {
    with_database(db, &["serve", "--json"])
        .env("TIDEGATE_LISTEN", "127.0.0.1:0")
        .env("TIDEGATE_LOG_LEVEL", "warn")
}

/// Waits until a server or `dev` is ready; what it said then.
pub async fn ready(running: &mut Running) -> Value {
    let line = running.line_with("\"ready\":true").await;
    serde_json::from_str(&line).expect("the line is JSON")
}

/// The program, for tests that start it themselves.
pub fn program() -> PathBuf {
    tidegate()
}

/// The checkout that this test belongs to.
pub fn checkout() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/tidegate is two levels down")
        .to_owned()
}
