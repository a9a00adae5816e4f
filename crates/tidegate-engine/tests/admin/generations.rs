use std::time::Duration;

use tidegate_engine::ops;
use tidegate_model::{Fence, RunId};
use tidegate_testkit::{TestCluster, TestDb};
use uuid::Uuid;

use crate::rig::{World, eventually, operator, store_at};

async fn lease(db: &TestDb, generation: i32) -> Uuid {
    let run = RunId::new().as_uuid();
    sqlx::query(
        "INSERT INTO run_leases (scope, bucket, tenant, run_id, class, urgency, attempt, fence_generation, fence_number,
             leases_lost, spent_tokens, spent_ms, next_seq, pool, holder, incarnation, instance_id, queued_at, started_at,
             lease_until)
         VALUES ('main', 0, 'acme', $1, 1, 0, 1, $2, 7, 0, 0, 0, 1, 'builtin', 'w1', 1, gen_random_uuid(), now(), now(),
             now() + interval '1 hour')",
    )
    .bind(run)
    .bind(generation)
    .execute(db.pool())
    .await
    .unwrap();
    run
}

/// R4.7: a restart of instance or database keeps the generation.
#[tokio::test]
async fn the_generation_stays_within_one_history() {
    let cluster = TestCluster::start(|options| options).await;
    let world = World::on(cluster.migrated_db().await);
    let engine = world.engine(World::settings()).await;
    assert_eq!(engine.generation(), 1);
    cluster.cluster().restart().await.unwrap();
    let again = world.engine(World::settings()).await;
    assert_eq!(again.generation(), 1);
    cluster.cluster().kill9().await.unwrap();
    cluster.cluster().restart().await.unwrap();
    let look = || async { again.observe_generation().await.is_ok() };
    eventually("the database is back", Duration::from_secs(20), look).await;
    assert_eq!(again.generation(), 1, "crash recovery is the same history");
}

/// R4.7: after a restored dump the generation rises before the first claim, once for all instances, and what dangles is
/// listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_dump_is_another_history() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let old = lease(&world.db, engine.generation()).await;
    let restored = World {
        db: world.db.restored_from_dump().await,
        keyring: world.keyring.clone(),
        enc_key: world.enc_key.clone(),
    };
    // The first connection of a server's pool is enough; no engine, no loop.
    let store = store_at(&restored.db.url());
    let view = store.recovery().await.unwrap();
    assert_eq!(view.generation, 2);
    assert!(view.cause.contains("restored dump"), "{}", view.cause);

    let starts = (0..4).map(|_| restored.engine(World::settings()));
    let engines = futures::future::join_all(starts).await;
    assert!(
        engines.iter().all(|engine| engine.generation() == 2),
        "raised once"
    );
    let fresh = lease(&restored.db, 2).await;
    let view = ops::recovery(&engines[0], &operator()).await.unwrap();
    let dangling: Vec<_> = view
        .leases
        .iter()
        .map(|lease| lease.run_id.as_uuid())
        .collect();
    assert_eq!(dangling, [old]);
    assert_ne!(old, fresh);
    assert_eq!(
        view.leases[0].fence,
        Fence {
            generation: 1,
            number: 7
        }
    );
    // The database that the dump was taken from is not touched.
    engine.observe_generation().await.unwrap();
    assert_eq!(engine.generation(), 1);
}

/// R4.7: after a promotion the generation rises, though the standby holds the same identity row.
#[tokio::test]
async fn a_promoted_standby_is_another_history() {
    let cluster = TestCluster::start(|options| options).await;
    let world = World::on(cluster.migrated_db().await);
    let engine = world.engine(World::settings()).await;
    lease(&world.db, engine.generation()).await;
    let standby = cluster.standby().await;
    let copy = world.db.on(&standby);
    let store = store_at(&copy.url());
    let arrived = || async {
        store
            .recovery()
            .await
            .is_ok_and(|view| view.generation == 1)
    };
    eventually("the standby follows", Duration::from_secs(20), arrived).await;
    standby.cluster().promote().await.unwrap();
    let promoted = World {
        db: copy,
        keyring: world.keyring.clone(),
        enc_key: world.enc_key.clone(),
    };
    let engine = promoted.engine(World::settings()).await;
    assert_eq!(engine.generation(), 2);
    let view = ops::recovery(&engine, &operator()).await.unwrap();
    assert!(view.cause.contains("timeline"), "{}", view.cause);
    assert_eq!(view.leases.len(), 1);
}

/// R4.7: a database that stands before what an instance has seen of it was put back, whatever its identity says.
#[tokio::test]
async fn a_database_that_was_put_back_is_another_history() {
    let world = World::new().await;
    let (one, two) = (
        world.engine(World::settings()).await,
        world.engine(World::settings()).await,
    );
    for _ in 0..2 {
        sqlx::query("UPDATE cluster SET identity = 'elsewhere'")
            .execute(world.db.pool())
            .await
            .unwrap();
        one.observe_generation().await.unwrap();
        two.observe_generation().await.unwrap();
    }
    assert_eq!((one.generation(), two.generation()), (3, 3));
    // As a disk snapshot would: the old row, the identity unchanged.
    sqlx::query("UPDATE cluster SET generation = 1")
        .execute(world.db.pool())
        .await
        .unwrap();
    one.observe_generation().await.unwrap();
    two.observe_generation().await.unwrap();
    assert_eq!(
        (one.generation(), two.generation()),
        (4, 4),
        "above all that was seen, once"
    );
}

/// Architecture, "No duty rests on a session lock": one holder at a time, a fence that rises, a lease that ends.
#[tokio::test]
async fn a_duty_has_one_holder_and_a_rising_fence() {
    let world = World::new().await;
    let fleet = world.store().fleet();
    let (one, two) = (
        tidegate_model::InstanceId::new(),
        tidegate_model::InstanceId::new(),
    );
    let first = fleet
        .hold_duty("sweep", one, 60_000)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(fleet.hold_duty("sweep", two, 60_000).await.unwrap(), None);
    let renewed = fleet.hold_duty("sweep", one, 1).await.unwrap().unwrap();
    assert_eq!(renewed.fence, first.fence, "renewing keeps the fence");
    let taken = || async {
        fleet
            .hold_duty("sweep", two, 60_000)
            .await
            .unwrap()
            .is_some()
    };
    eventually("the lease ends", Duration::from_secs(2), taken).await;
    assert!(
        !fleet.holds_duty(renewed).await.unwrap(),
        "the late holder is fenced off"
    );
    fleet.leave_duty(renewed).await.unwrap();
    let second = fleet
        .hold_duty("sweep", two, 60_000)
        .await
        .unwrap()
        .unwrap();
    assert!(second.fence > first.fence);
    fleet.leave_duty(second).await.unwrap();
    let third = fleet
        .hold_duty("sweep", one, 60_000)
        .await
        .unwrap()
        .unwrap();
    assert!(third.fence > second.fence, "handed back at once");
}
