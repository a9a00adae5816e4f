use std::path::Path;
use std::time::Duration;

use tidegate_testkit::{Proc, Running, TestCluster};

const PATIENCE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Proc {
    Proc::new("/bin/sh").args(["-c", script])
}

async fn ended_by_signal(mut process: Running) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    process.wait(PATIENCE).await.signal()
}

#[tokio::test]
async fn output_is_captured_and_waited_for_and_the_environment_is_ours() {
    let script = "echo ready; echo warn >&2; read -r word; echo got $word $TIDEGATE_X $CARGO_PKG_NAME; exit 3";
    let mut process = shell(script).env("TIDEGATE_X", "x").with_stdin().start();
    assert_eq!(process.line_with("rea").await, "ready");
    process.write_stdin("word\n");
    assert_eq!(process.wait(PATIENCE).await.code(), Some(3));
    assert_eq!(process.stdout(), "ready\ngot word x");
    assert_eq!(process.stderr(), "warn");
}

#[tokio::test]
async fn signals_arrive_and_a_frozen_process_does_nothing() {
    let counting = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done";
    let mut process = shell(counting).start();
    process.line_with("2").await;
    process.freeze();
    let stat = format!("/proc/{}/stat", process.id());
    let stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
    while !stopped() {
        tokio::task::yield_now().await;
    }
    let before = process.output().lines().count();
    process.thaw();
    let next = (before + 5).to_string();
    process.line_with(&next).await;
    process.term();
    assert_eq!(ended_by_signal(process).await, Some(15));
}

#[tokio::test]
async fn a_process_goes_with_its_handle() {
    let process = shell("echo up; exec sleep 100").start();
    let path = format!("/proc/{}/cwd", process.id());
    assert!(Path::new(&path).read_link().is_ok());
    drop(process);
    assert!(Path::new(&path).read_link().is_err());
}

const CHILD: &str = "TIDEGATE_TEST_CHILD";

/// Not a test by itself: a test process for the one below to kill.
#[tokio::test]
async fn doomed_test_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let server = TestCluster::shared().await;
    let process = shell("echo up; exec sleep 100").start();
    let (postgres, dir) = (server.cluster().pid().unwrap(), server.cluster().dir());
    println!("\nserver {postgres} {} {}", process.id(), dir.display());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn nothing_stays_behind_when_a_test_process_is_killed() {
    let mut doomed = Proc::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::doomed_test_process", "--nocapture"])
        .env(CHILD, "1")
        .start();
    let line = doomed
        .line_where("server", |line| line.starts_with("server "))
        .await;
    let words: Vec<_> = line.split(' ').skip(1).collect();
    let mut left: Vec<_> = words[..2]
        .iter()
        .map(|pid| format!("/proc/{pid}/exe"))
        .collect();
    left.push(words[2].to_owned());
    assert!(left.iter().all(|path| Path::new(path).exists()), "{left:?}");
    doomed.kill9();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // A link in /proc can be read as long as the process has not ended.
    while left
        .iter()
        .any(|path| Path::new(path).symlink_metadata().is_ok())
    {
        assert!(tokio::time::Instant::now() < deadline, "left: {left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        left.retain(|path| !path.starts_with("/proc") || Path::new(path).read_link().is_ok());
    }
}
