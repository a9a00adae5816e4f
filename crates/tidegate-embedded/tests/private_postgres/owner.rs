//! The owner as a process of its own: killed, or an ordinary user (R1.2).
//!
//! The owner is this test binary, started again with a directory in the environment. It is copied
//! to where an ordinary user can read it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig::{self, Dir, eventually, scalar};
use tidegate_embedded::{Cluster, Options, default_data_dir};

const DIR: &str = "TIDEGATE_TEST_OWNER_DIR";
const NOBODY: u32 = 65534;

/// Not a test by itself: the owner that the tests below start.
#[tokio::test]
async fn owner_process() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let mut options = Options::new(dir);
    options.lock_timeout = Duration::from_secs(20);
    let cluster = Cluster::start(options).await.unwrap();
    cluster.create_database("dev").await.unwrap();
    let pid = cluster.pid().unwrap();
    println!(
        "\nowned {pid} {} {}",
        cluster.account().name,
        cluster.url("dev")
    );
    std::future::pending::<()>().await;
}

struct Owner {
    process: Child,
    postgres: u32,
    account: String,
    url: String,
}

impl Owner {
    /// Starts an owner and waits for its server.
    fn start(command: &mut Command, dir: &Path) -> Self {
        let mut process = command
            .args(["--exact", "owner::owner_process", "--nocapture"])
            .env(DIR, dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let words = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("owned ").map(str::to_owned))
            .expect("the owner says what it owns");
        let mut words = words.split(' ').map(str::to_owned);
        Self {
            process,
            postgres: words.next().unwrap().parse().unwrap(),
            account: words.next().unwrap(),
            url: words.next().unwrap(),
        }
    }

    fn kill9(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Owner {
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing else runs while a test ends"
    )]
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Its server has until then to end, so that the directory can be removed.
        let deadline = Instant::now() + Duration::from_secs(10);
        while exists(self.postgres) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).exists()
}

fn me() -> PathBuf {
    std::env::current_exe().unwrap()
}

#[tokio::test]
async fn r1_2_the_server_ends_with_an_owner_that_was_killed_and_the_next_finds_its_data() {
    let dir = Dir::new();
    let cluster_dir = dir.path().join("pg");
    let mut owner = Owner::start(&mut Command::new(me()), &cluster_dir);
    rig::execute(&owner.url, "CREATE TABLE kept AS SELECT 7 AS n").await;
    owner.kill9();
    let postgres = owner.postgres;
    eventually(async || !exists(postgres)).await;

    let next = Owner::start(&mut Command::new(me()), &cluster_dir);
    assert_eq!(scalar(&next.url, "SELECT n FROM kept").await, 7);
}

#[tokio::test]
async fn r1_2_owner_and_server_may_both_be_killed_at_once() {
    let dir = Dir::new();
    let cluster_dir = dir.path().join("pg");
    let mut owner = Owner::start(&mut Command::new(me()), &cluster_dir);
    rig::execute(&owner.url, "CREATE TABLE kept AS SELECT 7 AS n").await;
    rig::kill9(owner.postgres);
    owner.kill9();
    let next = Owner::start(&mut Command::new(me()), &cluster_dir);
    assert_eq!(scalar(&next.url, "SELECT n FROM kept").await, 7);
}

#[tokio::test]
async fn r1_2_an_ordinary_user_runs_it_as_itself() {
    if !nix::unistd::Uid::effective().is_root() {
        // Then every other test here already is that proof.
        assert!(!default_data_dir("dev").unwrap().starts_with("/var/lib"));
        return;
    }
    let dir = Dir::new();
    let program = dir.path().join("owner");
    std::fs::copy(me(), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();

    let ordinary = || {
        let mut command = Command::new(&program);
        command
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .env("HOME", &home);
        command
    };
    let cluster_dir = home.join("pg");
    let mut owner = Owner::start(&mut ordinary(), &cluster_dir);
    rig::execute(&owner.url, "CREATE TABLE kept AS SELECT 7 AS n").await;
    assert_eq!(owner.account, "nobody");
    owner.kill9();
    let next = Owner::start(&mut ordinary(), &cluster_dir);
    assert_eq!(scalar(&next.url, "SELECT n FROM kept").await, 7);
}
