//! `tidegate dev`: the production path without set-up, with data that survive (R1.2).

use std::{
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use serde_json::Value;
use tidegate_testkit::{Proc, Running, scratch};

use crate::rig::{Ended, OTHER_KEY, PATIENCE, checkout, ready, run, run_where_it_is};

/// `nobody` on every Linux we know.
const NOBODY: u32 = 65_534;

struct Dev {
    dir: PathBuf,
    user: Option<u32>,
}

impl Dev {
    fn new(purpose: &str) -> Self {
        Self {
            dir: scratch::directory(purpose),
            user: None,
        }
    }

    fn command(&self, args: &[&str]) -> Proc {
        let mut proc = Proc::tidegate(&["dev", "--json"])
            .args(args)
            .env("TIDEGATE_DATA_DIR", &self.dir)
            .env("TIDEGATE_LISTEN", "127.0.0.1:0")
            .env("HOME", &self.dir)
            .current_dir(&std::env::temp_dir());
        if let Some(uid) = self.user {
            proc = proc.user(uid, uid);
        }
        proc
    }

    async fn start(&self, args: &[&str]) -> (Running, Value) {
        let mut running = self.command(args).start();
        let said = ready(&mut running).await;
        (running, said)
    }

    async fn cli(&self, args: &[&str]) -> Ended {
        let proc = Proc::tidegate(args)
            .args(["--json"])
            .env("TIDEGATE_PROFILE", self.dir.join("profile.toml"));
        run(proc).await
    }

    async fn tenants(&self) -> Vec<String> {
        let page = self.cli(&["tenant", "list"]).await.succeeded().json();
        let items = page["items"].as_array().expect("a list").clone();
        items
            .iter()
            .map(|tenant| tenant["tenant"].as_str().expect("a name").to_owned())
            .collect()
    }
}

async fn stop(mut running: Running) {
    running.term();
    assert!(
        running.wait(PATIENCE).await.success(),
        "{}",
        running.output()
    );
}

fn mode(path: &Path) -> u32 {
    let found = std::fs::metadata(path).expect("the file is there");
    found.permissions().mode() & 0o777
}

/// R1.2: demo data, keys for their owner alone, a first turn; all of it survives a restart, `--fresh` starts over.
#[tokio::test]
async fn data_survive_a_restart_and_fresh_starts_over() {
    let dev = Dev::new("dev-restart");
    let (running, _) = dev.start(&[]).await;
    for file in ["key", "profile.toml"] {
        assert_eq!(mode(&dev.dir.join(file)), 0o600, "{file}");
    }
    let said = dev
        .cli(&["conversation", "say", "new", "hello"])
        .await
        .succeeded();
    assert!(said.stdout.contains("run.ended"), "{}", said.stdout);
    dev.cli(&["tenant", "create", "initech"]).await.succeeded();
    let key = std::fs::read_to_string(dev.dir.join("key")).expect("key");
    stop(running).await;

    let (running, _) = dev.start(&[]).await;
    assert_eq!(dev.tenants().await, ["acme", "globex", "initech"]);
    assert_eq!(
        std::fs::read_to_string(dev.dir.join("key")).expect("key"),
        key
    );
    let runs = dev.cli(&["run", "list"]).await.succeeded().json();
    assert_eq!(runs["items"][0]["state"], "succeeded");
    stop(running).await;

    let (running, _) = dev.start(&["--fresh"]).await;
    assert_eq!(dev.tenants().await, ["acme", "globex"]);
    assert_ne!(
        std::fs::read_to_string(dev.dir.join("key")).expect("key"),
        key
    );
    stop(running).await;
}

/// R1.1, R1.2: data whose key is gone or another one are refused by the name of the file, and no key is written in its
/// place.
#[tokio::test]
async fn a_lost_key_is_not_replaced() {
    let dev = Dev::new("dev-lost-key");
    let (running, _) = dev.start(&["--no-seed"]).await;
    stop(running).await;
    let file = dev.dir.join("key");
    let kept = std::fs::read_to_string(&file).expect("key");
    let refused = async || {
        let ended = run(dev.command(&["--no-seed"])).await.failed_with(2);
        assert!(
            ended.stderr.contains(file.to_str().expect("a path"))
                && ended.stderr.contains("--fresh")
                && !ended.stderr.contains("CONFIG_ENC_KEY"),
            "{}",
            ended.stderr
        );
    };
    std::fs::remove_file(&file).expect("lost");
    refused().await;
    assert!(!file.exists(), "no new key where the data have one");
    std::fs::write(&file, OTHER_KEY).expect("another key");
    refused().await;
    std::fs::write(&file, kept).expect("put back");
    let (running, _) = dev.start(&["--no-seed"]).await;
    stop(running).await;
}

/// R1.2: `kill -9` in the middle of a run; the next start finds everything and finishes the run.
#[tokio::test]
async fn a_killed_server_leaves_nothing_broken() {
    let dev = Dev::new("dev-killed");
    let short = ["--lease-ms", "2000", "--renew-ms", "500"];
    let (mut running, _) = dev.start(&short).await;
    let slow = ["conversation", "say", "new", "explain slowly", "--no-wait"];
    let accepted = dev.cli(&slow).await.succeeded().json();
    let run_id = accepted["runId"].as_str().expect("a run").to_owned();
    running.kill9();

    let (running, _) = dev.start(&short).await;
    let watched = dev.cli(&["run", "watch", &run_id]).await.succeeded();
    assert!(
        watched.stdout.contains("\"succeeded\""),
        "{}",
        watched.stdout
    );
    stop(running).await;
}

/// R1.2: one directory, one owner.
#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let dev = Dev::new("dev-twice");
    let (running, _) = dev.start(&["--no-seed"]).await;
    let second = run(dev.command(&[])).await.failed_with(1);
    assert!(
        second.stderr.contains("another Tidegate"),
        "{}",
        second.stderr
    );
    assert!(second.stderr.contains("--data-dir"), "{}", second.stderr);
    stop(running).await;
}

/// R1.2: what somebody else keeps in a directory stays as it is, with `--fresh` too.
#[tokio::test]
async fn a_directory_of_somebody_else_is_refused() {
    let dev = Dev::new("dev-foreign");
    let key = dev.dir.join("key");
    std::fs::write(&key, "mine").expect("write");
    let demo = Proc::tidegate(&["demo", "--once", "--json"])
        .env("TIDEGATE_DATA_DIR", &dev.dir)
        .current_dir(&checkout());
    for proc in [dev.command(&["--fresh"]), dev.command(&["--once"]), demo] {
        let ended = run_where_it_is(proc).await.failed_with(2);
        let named = dev.dir.display().to_string();
        assert!(
            ended.stderr.contains(&named) && ended.stderr.contains("--data-dir"),
            "{}",
            ended.stderr
        );
    }
    assert_eq!(std::fs::read_to_string(&key).expect("it is there"), "mine");
    assert_eq!(std::fs::read_dir(&dev.dir).expect("a list").count(), 1);
}

/// R1.2: the key is in a file here, so that the file is named where it holds no key.
#[tokio::test]
async fn a_malformed_key_is_named_by_its_file() {
    let dev = Dev::new("dev-key");
    run(dev.command(&["--once", "--no-seed"])).await.succeeded();
    let key = dev.dir.join("key");
    std::fs::write(&key, "no key").expect("write");
    let ended = run(dev.command(&["--once"])).await.failed_with(2);
    let named = key.display().to_string();
    assert!(
        ended.stderr.contains(&named) && !ended.stderr.contains("CONFIG_ENC_KEY"),
        "{}",
        ended.stderr
    );
}

/// Bad input (R1.2): a key for `serve` that stands in the environment is nothing that `dev` reads.
#[tokio::test]
async fn a_key_of_the_environment_is_ignored() {
    let dev = Dev::new("dev-environment");
    let started = dev.command(&["--once", "--no-seed"]);
    let ended = run(started.env("CONFIG_ENC_KEY", "no key"))
        .await
        .succeeded();
    assert!(
        ended.stderr.contains("CONFIG_ENC_KEY is ignored"),
        "{}",
        ended.stderr
    );
}

/// R1.2: as root (whose PostgreSQL runs under another account) and as an ordinary user.
#[tokio::test]
async fn an_ordinary_user_needs_no_root() {
    if !nix_is_root() {
        // Then every other test of this file has shown it.
        return;
    }
    let mut dev = Dev::new("dev-user");
    dev.user = Some(NOBODY);
    chown(&dev.dir, Some(NOBODY), Some(NOBODY)).expect("give the directory away");
    let program = copy_for_everybody();
    let mut running = Proc::new(program)
        .args(["dev", "--json"])
        .env("TIDEGATE_DATA_DIR", &dev.dir)
        .env("TIDEGATE_LISTEN", "127.0.0.1:0")
        .env("HOME", &dev.dir)
        .current_dir(&std::env::temp_dir())
        .user(NOBODY, NOBODY)
        .start();
    ready(&mut running).await;
    let said = dev
        .cli(&["conversation", "say", "new", "hello"])
        .await
        .succeeded();
    assert!(said.stdout.contains("run.ended"), "{}", said.stdout);
    stop(running).await;
}

/// A checkout of root's may be closed to others; the binary then needs a place that is not.
fn copy_for_everybody() -> PathBuf {
    let copy = scratch::directory("dev-binary").join("tidegate");
    std::fs::copy(crate::rig::program(), &copy).expect("copy the binary");
    let parent = copy.parent().expect("a directory");
    for path in [parent, copy.as_path()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("open it");
    }
    copy
}

fn nix_is_root() -> bool {
    // The owner of our own process directory is who we are.
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("/proc")) == 0
}

/// `--once` ends by itself; what it made stays.
#[tokio::test]
async fn once_ends_by_itself() {
    let dev = Dev::new("dev-once");
    let ended = run(dev.command(&["--once"])).await.succeeded();
    assert!(
        ended.json()["url"]
            .as_str()
            .expect("url")
            .starts_with("http://127.0.0.1:")
    );
    assert!(dev.dir.join("profile.toml").is_file());
    // Nothing of it runs any more: the directory can be taken at once.
    let (running, _) = dev.start(&["--no-seed"]).await;
    stop(running).await;
}

/// What is printed to be pasted comes out of a shell as it went in.
#[tokio::test]
async fn commands_to_paste_are_quoted() {
    let dir = scratch::directory("dev-quoted").join("it's here");
    let proc = Proc::tidegate(&["dev", "--once", "--no-seed"])
        .env("TIDEGATE_DATA_DIR", &dir)
        .env("TIDEGATE_LISTEN", "127.0.0.1:0")
        .env("HOME", &dir);
    let ended = run(proc).await.succeeded();
    let printed = ended
        .stdout
        .lines()
        .find_map(|line| line.trim().strip_suffix(" run list"))
        .expect("a command");
    let words = std::process::Command::new("sh")
        .args(["-c", &format!("printf '%s\\n' {printed}")])
        .output()
        .expect("a shell");
    let profile = dir.join("profile.toml").display().to_string();
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    assert_eq!(
        words.lines().collect::<Vec<_>>(),
        ["tidegate", "--profile", &profile]
    );
}
