//! SIGSTOP beyond the lease, then SIGCONT.

use std::time::Duration;

use tidegate_testkit::TestDb;

use crate::rig::World;

/// R4.2, R4.4: after a pause beyond its lease a holder can write nothing; the run is another's, and ends once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_instance_writes_nothing_when_it_wakes() {
    let mut world = World::new(TestDb::new().await, 2, 16, 6, Duration::from_secs(8)).await;
    for tenant in 0..6 {
        world.turn(tenant).await;
        world.turn(tenant).await;
    }
    world
        .until_count("SELECT count(*) FROM run_leases", 12)
        .await;
    let (index, held) = world.busiest().await;
    let frozen = world.servers[index].instance;
    world.servers[index].process.freeze();
    world.until_elsewhere(&held, frozen).await;
    let taken: i64 = world
        .count("SELECT count(*) FROM run_attempts WHERE outcome = 'lease_lost'")
        .await;
    assert!(
        (1..=i64::try_from(held.len()).expect("small")).contains(&taken),
        "{taken} of {}",
        held.len()
    );
    // What the late holder could still change: nothing of these is touched by anybody but it.
    world.servers[index].process.thaw();
    world.until_all_succeeded().await;
    let late: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM run_attempts a WHERE a.run_id = ANY ($1) AND a.outcome = 'succeeded'
         AND NOT EXISTS (SELECT FROM run_attempts l WHERE l.run_id = a.run_id AND l.outcome = 'lease_lost'
                         AND l.fence_number < a.fence_number)",
    )
    .bind(&held)
    .fetch_one(world.db.pool())
    .await
    .expect("count");
    assert_eq!(
        late, 0,
        "a run that was taken over was finished under its old fence"
    );
    // It serves again without a restart.
    let before = world.count("SELECT count(*) FROM run_ends").await;
    for tenant in 0..6 {
        world.turn(tenant).await;
    }
    world
        .until_count("SELECT count(*) FROM run_ends", before + 6)
        .await;
    world.until_all_succeeded().await;
}
