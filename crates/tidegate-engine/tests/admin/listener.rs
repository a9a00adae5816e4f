use std::{sync::Arc, time::Duration};

use tidegate_engine::{catalog, ops, settings::Settings};
use tidegate_testkit::{TestCluster, log};

use crate::{
    catalog::provider,
    pooler::Pooler,
    rig::{Node, World, eventually, id, operator},
};

/// The lines of this test's log that hold a text.
fn lines_with(text: &str) -> Vec<String> {
    let log = log::text();
    let lines = log.lines().filter(|line| line.contains(text));
    lines.map(str::to_owned).collect()
}

fn listening(node: &Node) -> impl Future<Output = bool> {
    let heard = node.engine.platform().bus().is_listening();
    std::future::ready(heard)
}

async fn put(node: &Node, url: &str) {
    let request = provider(url, None);
    catalog::put_provider(&node.engine, &operator(), id("openai"), request)
        .await
        .unwrap();
}

async fn sees(node: &Node, url: &str) -> bool {
    let catalog = catalog::resolved(&node.engine).await.unwrap();
    catalog
        .providers
        .first()
        .is_some_and(|provider| provider.base_url == url)
}

/// O-23: behind a pooler in transaction mode LISTEN succeeds and nothing arrives. The instance finds out by itself, says
/// so in one line and in its row, and learns of changes by polling; the other one is not affected.
#[tokio::test]
async fn a_deaf_instance_says_so_once_and_polls() {
    log::catch();
    let world = World::new().await;
    let direct = world.node().await;
    let pooler = Pooler::start(world.db.target(), world.db.name()).await;
    let settings = Settings {
        config_poll_ms: 700,
        listener_heartbeat_ms: 100,
        listener_dead_ms: 500,
        ..World::settings()
    };
    let url = world.db.url_at(pooler.address());
    let behind = world.node_at(&url, settings).await;
    eventually("direct listens", Duration::from_secs(5), || {
        listening(&direct)
    })
    .await;
    let told = || async { !lines_with("do not arrive here").is_empty() };
    eventually("it is said", Duration::from_secs(5), told).await;
    // Through several tries it is not said again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let lines = lines_with("do not arrive here");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("not through a pooler in transaction mode"),
        "{}",
        lines[0]
    );
    assert!(lines[0].contains("poll_ms=700"), "{}", lines[0]);

    let shown = ops::instances(&direct.engine, &operator()).await.unwrap();
    let of = |node: &Node| {
        shown
            .iter()
            .find(|i| i.instance_id == node.engine.instance())
            .unwrap()
    };
    assert!(of(&direct).listening && !of(&behind).listening);
    for number in 0..3 {
        let url = format!("https://{number}.example/v1");
        put(&direct, &url).await;
        eventually("by polling", Duration::from_secs(2), || sees(&behind, &url)).await;
        let url = format!("https://{number}.test/v1");
        put(&behind, &url).await;
        eventually("by notification", Duration::from_secs(1), || {
            sees(&direct, &url)
        })
        .await;
    }
}

/// O-23: on a read-only standby there is no listening at all; that is said in one line too.
#[tokio::test]
async fn a_standby_cannot_be_listened_to() {
    log::catch();
    let cluster = TestCluster::start(|options| options).await;
    let world = World::on(cluster.migrated_db().await);
    let engine = world.engine(World::settings()).await;
    let standby = cluster.standby().await;
    let copy = world.db.on(&standby);
    let refused = crate::rig::store_at(&copy.url())
        .listen(&["x"])
        .await
        .unwrap_err();
    assert!(refused.is_unavailable(), "{refused}");
    drop(engine);
    // An engine whose database becomes a standby: its writes fail, and it says that nothing arrives.
    let settings = Arc::new(World::settings());
    let engine = tidegate_engine::Engine::new(tidegate_engine::EngineParts {
        settings,
        store: crate::rig::store_at(&copy.url()),
        instance: tidegate_model::InstanceId::new(),
        digest_key: [1; 32],
        keyring: world.keyring.clone(),
    });
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(tidegate_engine::config_bus::listen(
        engine.clone(),
        stop.clone(),
    ));
    let told = || async { !lines_with("do not arrive here").is_empty() };
    eventually("it is said", Duration::from_secs(5), told).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(lines_with("do not arrive here").len(), 1);
    assert!(!engine.platform().bus().is_listening());
    stop.cancel();
    task.await.unwrap();
}

/// R17.1: a listener that is lost listens again before everything is read anew: a change that was made while nobody
/// listened is served afterwards, and the next one arrives as a notification.
#[tokio::test]
async fn a_lost_listener_misses_nothing() {
    log::catch();
    let cluster = TestCluster::start(|options| options).await;
    let world = World::on(cluster.migrated_db().await);
    let settings = || Settings {
        config_poll_ms: 60_000,
        ..World::settings()
    };
    let one = world.node_at(&world.db.url(), settings()).await;
    let two = world.node_at(&world.db.url(), settings()).await;
    for node in [&one, &two] {
        eventually("listening", Duration::from_secs(5), || listening(node)).await;
    }
    put(&one, "https://before.example/v1").await;
    eventually("served", Duration::from_secs(1), || {
        sees(&two, "https://before.example/v1")
    })
    .await;
    // Only the listener of the second one dies, quietly; the change falls into the gap.
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
    )
    .execute(world.db.pool())
    .await
    .unwrap();
    sqlx::query("UPDATE providers SET base_url = 'https://gap.example/v1'")
        .execute(world.db.pool())
        .await
        .unwrap();
    eventually("the gap is read", Duration::from_secs(4), || {
        sees(&two, "https://gap.example/v1")
    })
    .await;
    eventually("hears again", Duration::from_secs(4), || listening(&two)).await;
    put(&one, "https://after.example/v1").await;
    eventually("notified", Duration::from_secs(1), || {
        sees(&two, "https://after.example/v1")
    })
    .await;

    // The whole database goes and comes back.
    cluster.cluster().restart().await.unwrap();
    for node in [&one, &two] {
        eventually("hears again", Duration::from_secs(20), || listening(node)).await;
    }
    let restored = || async { !lines_with("arrive again").is_empty() };
    eventually("it is said", Duration::from_secs(2), restored).await;
    // What did hear and was lost is no matter of a pooler.
    assert!(!lines_with("was lost and is made anew").is_empty());
    assert_eq!(lines_with("through a pooler"), Vec::<String>::new());
    put(&two, "https://restarted.example/v1").await;
    let url = "https://restarted.example/v1";
    eventually("served", Duration::from_secs(1), || sees(&one, url)).await;
}

/// O-23: a pool of which nothing is free says nothing of how the database is reached: no pooler is blamed, and the line
/// names what to change.
#[tokio::test]
async fn a_pool_in_use_is_not_taken_for_a_pooler() {
    log::catch();
    let world = World::new().await;
    let store = tidegate_store::connect(&tidegate_store::ConnectOptions {
        max_connections: 4,
        acquire_timeout: Duration::from_millis(300),
        ..tidegate_store::ConnectOptions::new(world.db.url())
    })
    .map(tidegate_store::Store::new)
    .unwrap();
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(store.pool().acquire().await.unwrap());
    }
    let engine = tidegate_engine::Engine::new(tidegate_engine::EngineParts {
        settings: Arc::new(World::settings()),
        store,
        instance: tidegate_model::InstanceId::new(),
        digest_key: [1; 32],
        keyring: world.keyring.clone(),
    });
    let stop = tokio_util::sync::CancellationToken::new();
    let listening = tidegate_engine::config_bus::listen(engine.clone(), stop.clone());
    let task = tokio::spawn(listening);
    let told = || async { !lines_with("no connection came free").is_empty() };
    eventually("it is said", Duration::from_secs(5), told).await;
    assert_eq!(lines_with("pooler"), Vec::<String>::new());
    let line = lines_with("no connection came free").remove(0);
    assert!(line.contains("TIDEGATE_DB_POOL_SIZE"), "{line}");
    drop(taken);
    eventually("listens", Duration::from_secs(10), || {
        std::future::ready(engine.platform().bus().is_listening())
    })
    .await;
    stop.cancel();
    task.await.unwrap();
}
