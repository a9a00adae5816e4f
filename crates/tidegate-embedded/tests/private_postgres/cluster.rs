//! A private cluster through its life: kept, restarted, crashed, contested, started over (R1.2).

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::rig::{self, Dir, eventually, scalar, try_scalar};
use sqlx::Connection;
use tidegate_embedded::{Account, Cluster, EmbeddedError, Listen, Options};

/// A throwaway cluster with a table `kept` that has one row.
async fn with_a_row(options: Options) -> Cluster {
    let cluster = Cluster::start(options).await.unwrap();
    assert!(cluster.create_database("dev").await.unwrap());
    rig::execute(&cluster.url("dev"), "CREATE TABLE kept AS SELECT 7 AS n").await;
    cluster
}

#[tokio::test]
async fn r1_2_data_is_kept_across_restarts_and_fresh_starts_over() {
    let dir = Dir::new();
    let cluster = with_a_row(dir.options()).await;
    assert!(!cluster.create_database("dev").await.unwrap(), "made twice");
    assert!(cluster.pid().is_some());
    cluster.restart().await.unwrap();
    assert_eq!(scalar(&cluster.url("dev"), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();
    cluster.stop().await.unwrap();
    assert_eq!(cluster.pid(), None);
    let error = cluster.restart().await.unwrap_err();
    assert!(matches!(error, EmbeddedError::Stopped));

    let cluster = Cluster::start(dir.options()).await.unwrap();
    assert_eq!(scalar(&cluster.url("dev"), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();

    let mut options = dir.options();
    options.fresh = true;
    let cluster = Cluster::start(options).await.unwrap();
    assert!(
        cluster.create_database("dev").await.unwrap(),
        "data survived"
    );
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn r1_2_a_second_owner_is_refused_and_the_first_is_not_disturbed() {
    let dir = Dir::new();
    let cluster = with_a_row(dir.options()).await;
    let mut second = dir.options();
    second.lock_timeout = Duration::ZERO;
    second.fresh = true;
    let error = Cluster::start(second).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::Owned { .. }), "{error}");
    assert_eq!(scalar(&cluster.url("dev"), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn r1_2_a_killed_server_comes_back_by_itself_with_what_was_committed() {
    let dir = Dir::new();
    let mut options = dir.options();
    options.revive = true;
    let cluster = with_a_row(options).await;
    let before = cluster.pid().unwrap();
    // A backend in the middle of a statement outlives its postmaster for a while.
    let url = cluster.url("dev");
    let busy =
        tokio::spawn(async move { try_scalar(&url, "SELECT pg_sleep(30)::text::int").await });
    let in_sleep = "SELECT count(*)::int FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    let url = cluster.url("postgres");
    eventually(async || scalar(&url, in_sleep).await == 1).await;
    // Not through the handle: nobody announces a crash.
    rig::kill9(before);
    eventually(async || cluster.pid().is_some_and(|pid| pid != before)).await;
    let url = cluster.url("dev");
    eventually(async || try_scalar(&url, "SELECT n FROM kept").await.is_ok()).await;
    assert_eq!(scalar(&url, "SELECT n FROM kept").await, 7);
    assert!(busy.await.unwrap().is_err());
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_test_kills_and_restarts_when_it_wants() {
    let dir = Dir::new();
    let cluster = with_a_row(dir.options()).await;
    cluster.kill9().await.unwrap();
    assert_eq!(cluster.pid(), None);
    assert!(try_scalar(&cluster.url("dev"), "SELECT 1").await.is_err());
    cluster.restart().await.unwrap();
    assert_eq!(scalar(&cluster.url("dev"), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn r1_2_a_server_that_an_earlier_owner_left_running_is_taken_over() {
    let dir = Dir::new();
    let cluster = with_a_row(dir.options()).await;
    let (postgres, data) = (
        cluster.binaries().program("postgres"),
        cluster.dir().join("data"),
    );
    let (account, run) = (cluster.account().clone(), cluster.dir().join("run"));
    cluster.stop().await.unwrap();

    let mut command = Command::new(postgres);
    command
        .arg("-D")
        .arg(&data)
        .args(["-c", "listen_addresses=", "-c"])
        .arg(format!("unix_socket_directories={}", run.display()))
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if account.dropped {
        command.uid(account.uid).gid(account.gid);
    }
    let mut orphan = command.spawn().unwrap();
    let pid_file = data.join("postmaster.pid");
    eventually(async || {
        std::fs::read_to_string(&pid_file).is_ok_and(|text| text.contains("ready"))
    })
    .await;

    let cluster = Cluster::start(dir.options()).await.unwrap();
    assert!(
        orphan.try_wait().unwrap().is_some(),
        "two servers on one cluster"
    );
    assert_eq!(scalar(&cluster.url("dev"), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn tcp_is_loopback_with_a_password_and_fast_shutdown_ends_sessions() {
    let dir = Dir::new();
    let mut options = dir.options();
    options.listen = Listen::Tcp { port: None };
    let cluster = with_a_row(options).await;
    let url = cluster.url("dev");
    assert!(url.contains("@127.0.0.1:"), "{}", cluster.port());
    assert_eq!(scalar(&url, "SELECT n FROM kept").await, 7);
    assert_eq!(
        scalar(&cluster.socket_url("dev"), "SELECT n FROM kept").await,
        7
    );
    let shown = format!("{cluster:?}");
    let password = url.split([':', '@']).nth(2).unwrap();
    assert!(password.len() > 20 && !shown.contains(password));
    let wrong = url.replace(password, "guess");
    let error = try_scalar(&wrong, "SELECT 1").await.unwrap_err();
    assert!(error.to_string().contains("password"), "{error}");
    // A session that idles must not hold up the end.
    let session = sqlx::PgConnection::connect(&url).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), cluster.stop())
        .await
        .unwrap()
        .unwrap();
    drop(session);
}

#[tokio::test]
async fn odd_and_long_directories_work() {
    let dir = Dir::new();
    for name in ["a b,\"c\"%20é".to_owned(), "d".repeat(120)] {
        let mut options = dir.options();
        options.dir = dir.path().join(name);
        let cluster = with_a_row(options).await;
        assert_eq!(scalar(&cluster.url("dev"), "SELECT n FROM kept").await, 7);
        let outside = !cluster.socket_dir().starts_with(cluster.dir());
        cluster.stop().await.unwrap();
        assert!(!outside || !cluster.socket_dir().exists(), "left behind");
    }
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let dir = Dir::new();
    let options = dir.options().setting("shared_buffers", "a lot");
    let error = Cluster::start(options).await.unwrap_err().to_string();
    assert!(error.contains("shared_buffers"), "{error}");
    assert!(error.contains("postgres.log"), "{error}");
    // Nothing is half-done: the same directory serves at once.
    let cluster = Cluster::start(dir.options()).await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn an_interrupted_first_start_leaves_nothing_that_looks_like_data() {
    let dir = Dir::new();
    let waiting = tokio::time::timeout(Duration::from_millis(100), Cluster::start(dir.options()));
    assert!(waiting.await.is_err(), "initdb is not that fast");
    let mut options = dir.options();
    options.lock_timeout = Duration::from_secs(30);
    let cluster = with_a_row(options).await;
    assert_eq!(scalar(&cluster.url("dev"), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn ctrl_c_in_the_terminal_reaches_the_owner_alone() {
    let dir = Dir::new();
    let cluster = Cluster::start(dir.options()).await.unwrap();
    let server = nix::unistd::Pid::from_raw(i32::try_from(cluster.pid().unwrap()).unwrap());
    let group = nix::unistd::getpgid(Some(server)).unwrap();
    assert_ne!(group, nix::unistd::getpgrp());
    assert_ne!(Account::choose(None, None).unwrap().uid, 0);
    cluster.stop().await.unwrap();
}
