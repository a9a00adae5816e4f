use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tidegate_engine::{Engine, catalog, config_bus, ops, settings::Settings};
use tidegate_model::api::{InstanceView, PageQuery, RevisionView};
use tidegate_store::Store;

use crate::{
    catalog::provider,
    rig::{World, eventually, id, operator, tenant},
};

async fn revisions(engine: &Engine, limit: u32) -> Vec<RevisionView> {
    let query = PageQuery {
        limit: Some(limit),
        cursor: None,
    };
    ops::revisions(engine, &operator(), &query)
        .await
        .unwrap()
        .items
}

async fn put(engine: &Engine, url: &str) {
    let request = provider(url, Some("k"));
    catalog::put_provider(engine, &operator(), id("openai"), request)
        .await
        .unwrap();
}

async fn url_seen(engine: &Engine) -> Option<String> {
    let catalog = catalog::resolved(engine).await.unwrap();
    catalog
        .providers
        .first()
        .map(|provider| provider.base_url.clone())
}

/// R17.1: revisions are dense and become visible in their order, however many write at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_are_dense_and_seen_in_order() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let start = engine.store().last_revision().await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let engine = engine.clone();
        writers.spawn(async move {
            for number in 0..10 {
                tenant(&engine, &format!("t{writer}-{number}")).await;
            }
        });
    }
    // A reader that moves to the newest it sees must have seen all before it.
    let mut seen = start;
    while seen < start + 80 {
        let news = engine.store().revisions_after(seen, 1_000).await.unwrap();
        for revision in news {
            assert_eq!(revision.revision, seen + 1, "a gap");
            seen += 1;
        }
    }
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    assert_eq!(engine.store().last_revision().await.unwrap(), start + 80);
}

/// R17.1, R17.2: a change is served by another instance within a second, and the log shows since when it is in force
/// everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_in_force_everywhere_within_a_second() {
    let world = World::new().await;
    let (one, two) = (world.node().await, world.node().await);
    for node in [&one, &two] {
        let listening = || async { node.engine.platform().bus().is_listening() };
        eventually("listening", Duration::from_secs(5), listening).await;
    }
    assert_eq!(url_seen(&two.engine).await, None);
    for number in 0..5 {
        let url = format!("https://api-{number}.example/v1");
        put(&one.engine, &url).await;
        assert_eq!(
            url_seen(&one.engine).await.as_deref(),
            Some(url.as_str()),
            "at once where it was made"
        );
        let seen = || async { url_seen(&two.engine).await.as_deref() == Some(url.as_str()) };
        eventually("served elsewhere", Duration::from_secs(1), seen).await;
    }
    let in_force = || async { revisions(&one.engine, 1).await[0].in_force_since.is_some() };
    eventually("in force everywhere", Duration::from_secs(2), in_force).await;
    let last = one.engine.store().last_revision().await.unwrap();
    let shown = || async {
        let listed = ops::instances(&one.engine, &operator()).await.unwrap();
        let skewed = |i: &InstanceView| i.clock_skew_ms.abs() > 400;
        assert!(!listed.iter().any(skewed), "one machine, one clock");
        let follows = |i: &InstanceView| i.alive && i.listening && i.revision == last;
        listed.len() == 2 && listed.iter().all(follows)
    };
    eventually("both are shown", Duration::from_secs(3), shown).await;
    // An instance that has stopped holds nothing back.
    two.stop().await;
    put(&one.engine, "https://last.example/v1").await;
    let in_force = || async { revisions(&one.engine, 1).await[0].in_force_since.is_some() };
    eventually("in force without it", Duration::from_secs(2), in_force).await;
}

/// R17.2: as long as one live instance has not followed, a change is not in force everywhere.
#[tokio::test]
async fn an_instance_that_does_not_follow_is_not_overlooked() {
    let world = World::new().await;
    let follower = world.node().await;
    // Alive by its heartbeat, but deaf: no loop that follows the log.
    let deaf = world.engine(World::settings()).await;
    put(&follower.engine, "https://api.example/v1").await;
    let caught_up = || async {
        tidegate_engine::instances::heartbeat::beat(&deaf)
            .await
            .unwrap();
        let all = ops::instances(&deaf, &operator()).await.unwrap();
        let last = deaf.store().last_revision().await.unwrap();
        all.iter().any(|i| i.revision == last)
    };
    eventually("the other one followed", Duration::from_secs(2), caught_up).await;
    assert_eq!(revisions(&deaf, 1).await[0].in_force_since, None);
}

/// R17.2: a change is in force on an instance when whoever builds on the configuration has applied it, not before.
#[tokio::test]
async fn a_change_is_in_force_when_it_is_applied() {
    let world = World::new().await;
    let node = world.node().await;
    let (applying, applied) = tokio::sync::watch::channel(0);
    node.engine.platform().bus().wait_for(applied);
    put(&node.engine, "https://api.example/v1").await;
    let last = node.engine.store().last_revision().await.unwrap();
    let served = || async { node.engine.platform().bus().served() == last };
    eventually("served", Duration::from_secs(2), served).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(revisions(&node.engine, 1).await[0].in_force_since, None);
    applying.send_replace(last);
    let in_force = || async { revisions(&node.engine, 1).await[0].in_force_since.is_some() };
    eventually("in force", Duration::from_secs(1), in_force).await;
    // Whoever has stopped holds nothing back.
    drop(applying);
    put(&node.engine, "https://next.example/v1").await;
    eventually("in force", Duration::from_secs(1), in_force).await;
}

/// R17.1: without any notification the poll finds the change in its time.
#[tokio::test]
async fn without_notifications_the_poll_finds_a_change() {
    let world = World::new().await;
    let settings = Settings {
        config_poll_ms: 300,
        ..World::settings()
    };
    let follower = world.engine(settings).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(config_bus::run(follower.clone(), stop.clone()));
    let writer = world.engine(World::settings()).await;
    assert_eq!(url_seen(&follower).await, None);
    put(&writer, "https://api.example/v1").await;
    let seen = || async { url_seen(&follower).await.is_some() };
    eventually("found by polling", Duration::from_millis(1_500), seen).await;
    // A log that was restored from an older state is noticed too.
    let served = follower.platform().bus().served();
    sqlx::query("DELETE FROM config_revisions WHERE revision = (SELECT max(revision) FROM config_revisions)")
        .execute(world.db.pool())
        .await
        .unwrap();
    let back = || async { follower.platform().bus().served() == served - 1 };
    eventually(
        "the served revision follows down",
        Duration::from_secs(2),
        back,
    )
    .await;
    stop.cancel();
    task.await.unwrap();
}

/// R17.1: a hint that cannot be sent only warns; the write stands.
#[tokio::test]
async fn a_failed_hint_does_not_undo_the_write() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    put(&engine, "https://api.example/v1").await;
    let gone = world.store();
    gone.pool().close().await;
    let gone: Store = gone;
    config_bus::publish(&gone, 1).await;
    assert!(url_seen(&engine).await.is_some());
}

/// O-30: a notification carries a number and nothing else, whatever was written; a large write always commits.
#[tokio::test]
async fn notifications_carry_a_number_only() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let mut listener = engine.store().listen(&[config_bus::CHANNEL]).await.unwrap();
    let mut server = crate::catalog::tool_server(&[("TOKEN", &"ß".repeat(4_000))]);
    server.mount.deny = (0..20).map(|tool| format!("tool{tool:0190}")).collect();
    catalog::put_tool_server(&engine, &operator(), id("large"), server)
        .await
        .unwrap();
    put(&engine, "https://api.example/v1").await;
    for _ in 0..2 {
        let heard = tokio::time::timeout(Duration::from_secs(2), listener.next())
            .await
            .unwrap()
            .unwrap();
        assert!(heard.payload.len() <= 20, "{}", heard.payload.len());
        assert!(heard.payload.parse::<i64>().is_ok(), "{}", heard.payload);
    }
    let resolved = catalog::resolved(&engine).await.unwrap();
    assert_eq!(resolved.tool_servers[0].mount.deny.len(), 20);
}

/// Asks without end; nothing may be older than what `floor` said before the question.
async fn read_without_end(
    engine: Engine,
    floor: impl Fn(&Engine) -> i64,
    stop: tokio_util::sync::CancellationToken,
) -> i64 {
    let mut last = 0;
    while !stop.is_cancelled() {
        let floor = floor(&engine);
        let url = url_seen(&engine).await.unwrap();
        let number = url["https://".len()..].split('.').next().unwrap();
        last = number.parse().unwrap();
        assert!(last >= floor, "{last} was served after {floor}");
        tokio::task::yield_now().await;
    }
    last
}

/// O-24: under constant use of the old settings a change wins everywhere, and no reader that was on its way brings the
/// old ones back: where the change was made from its answer on, elsewhere from when its revision is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_in_flight_never_bring_old_settings_back() {
    let world = World::new().await;
    let settings = || Settings {
        cache_ttl_ms: 300,
        ..World::settings()
    };
    let (one, two) = (
        world.node_at(&world.db.url(), settings()).await,
        world.node_at(&world.db.url(), settings()).await,
    );
    put(&one.engine, "https://0.example/v1").await;
    let base = one.engine.store().last_revision().await.unwrap();
    let answered = Arc::new(AtomicI64::new(0));
    let stop = tokio_util::sync::CancellationToken::new();
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let answered = Arc::clone(&answered);
        let floor = move |_: &Engine| answered.load(Ordering::SeqCst);
        readers.spawn(read_without_end(one.engine.clone(), floor, stop.clone()));
        // The change number n is revision base + n.
        let floor = move |engine: &Engine| engine.platform().bus().served() - base;
        readers.spawn(read_without_end(two.engine.clone(), floor, stop.clone()));
    }
    for number in 1..=40 {
        put(&one.engine, &format!("https://{number}.example/v1")).await;
        answered.store(number, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Five lifetimes of a cached value.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    stop.cancel();
    while let Some(last) = readers.join_next().await {
        assert_eq!(last.unwrap(), 40);
    }
}

/// Architecture, rules: a list of all caches is generated; each says what empties it, and no other module keeps
/// configuration in a cache of its own.
#[tokio::test]
async fn every_cache_of_configuration_is_listed() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let caches = engine.platform().caches().list();
    let names: Vec<_> = caches.iter().map(|cache| cache.name()).collect();
    assert_eq!(
        names,
        ["keys", "catalog", "tiers", "resources", "grant_keys"]
    );
    assert!(caches.iter().all(|cache| !cache.concerns().is_empty()));
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut with_caches = Vec::new();
    let mut open = vec![sources.clone()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            if ["use moka::", "use quick_cache::"]
                .iter()
                .any(|used| source.contains(used))
            {
                with_caches.push(path.strip_prefix(&sources).unwrap().to_path_buf());
            }
        }
    }
    with_caches.sort();
    // context.rs keeps what never changes: places of leases, requirement classes.
    let expected = ["cache.rs", "context.rs"].map(std::path::PathBuf::from);
    assert_eq!(
        with_caches, expected,
        "keep configuration in a VersionedCache of platform::Caches"
    );
}
