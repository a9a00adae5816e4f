use std::time::Duration;

use tidegate_engine::ready::readiness;
use tidegate_testkit::{Proxy, TestCluster};

use crate::rig::{World, eventually};

/// R21.4, R1.7: ready while it works, not while it drains.
#[tokio::test]
async fn readiness_follows_drain() {
    let world = World::new().await;
    let node = world.node().await;
    let ready = readiness(&node.engine).await;
    assert!(ready.ready, "{ready:?}");
    let heard = || async {
        let seen = readiness(&node.engine).await;
        seen.checks
            .iter()
            .any(|check| check.name == "notifications" && check.ok)
    };
    eventually("notifications are shown", Duration::from_secs(5), heard).await;
    node.engine.drain();
    let draining = readiness(&node.engine).await;
    assert!(!draining.ready);
    assert!(
        draining
            .checks
            .iter()
            .any(|check| check.name == "intake" && !check.ok)
    );
    let row = || async {
        let all = node.engine.store().list_instances(10_000).await.unwrap();
        all.iter().all(|instance| instance.draining)
    };
    eventually("the others see it", Duration::from_secs(2), row).await;
}

/// R21.4: a database that cannot be written makes it unready, within its time, without an address in the answer; it comes
/// back by itself.
#[tokio::test]
async fn readiness_follows_the_database() {
    let cluster = TestCluster::start(|options| options).await;
    let world = World::on(cluster.migrated_db().await);
    let proxy = Proxy::start(world.db.target()).await;
    let engine = world
        .engine_at(&world.db.url_at(proxy.address()), World::settings())
        .await;
    assert!(readiness(&engine).await.ready);
    proxy.down();
    let unready = || async { !readiness(&engine).await.ready };
    eventually("unready", Duration::from_secs(5), unready).await;
    let seen = readiness(&engine).await;
    let database = seen
        .checks
        .iter()
        .find(|check| check.name == "database")
        .unwrap();
    assert!(!database.detail.contains("127.0.0.1") && !database.detail.contains(world.db.name()));
    proxy.heal();
    let ready = || async { readiness(&engine).await.ready };
    eventually("ready again", Duration::from_secs(10), ready).await;
    proxy.black_hole();
    let began = tokio::time::Instant::now();
    eventually("unready", Duration::from_secs(5), unready).await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "a probe has its time"
    );
    proxy.heal();
}
