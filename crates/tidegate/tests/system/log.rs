//! What a server's log looks like to whoever has to read it.

use std::time::{Duration, Instant};

use tidegate_testkit::{Running, TestCluster};

use crate::rig::{PATIENCE, ready, serve};

async fn until_said(server: &Running, text: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !server.stderr().contains(text) {
        assert!(
            Instant::now() < deadline,
            "{text} is never said:\n{}",
            server.stderr()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// R21.3: a database that is away for a while is one line at its beginning, with the cause, and one at its end; no loop
/// says at every turn that it failed, and no library says it in its own words.
#[tokio::test]
async fn a_lost_database_is_said_once_and_so_is_its_return() {
    let cluster = TestCluster::start(|options| options).await;
    let db = cluster.migrated_db().await;
    let mut server = serve(&db)
        .env("TIDEGATE_LOG_LEVEL", "info")
        .env("TIDEGATE_INSTANCE_HEARTBEAT_MS", "200")
        .env("TIDEGATE_TAKEOVER_SWEEP_MS", "100")
        .start();
    ready(&mut server).await;
    cluster.cluster().kill9().await.expect("killed");
    until_said(&server, "the database cannot be used").await;
    // Time for many rounds of every loop.
    tokio::time::sleep(Duration::from_secs(4)).await;
    cluster.cluster().restart().await.expect("restarted");
    until_said(&server, "the database can be used again").await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    let log = server.stderr();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(lines("the database can be used again"), 1, "{log}");
    let away = lines("the database cannot be used");
    assert!((1..=3).contains(&away), "refused, then starting:\n{log}");
    assert_eq!(lines("sqlx"), 0, "{log}");
    assert_eq!(lines("pool timed out"), 0, "{log}");
    let loud = lines(" WARN ") + lines(" ERROR ");
    assert!(loud <= 8, "{loud} loud lines:\n{log}");
    server.term();
    assert!(server.wait(PATIENCE).await.success(), "{}", server.output());
}
