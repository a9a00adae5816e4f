//! `kill -9` of an instance under load.

use std::time::Duration;

use tidegate_testkit::TestDb;

use crate::rig::{LEASE, World};

/// R4.4: every run that a killed instance held runs elsewhere within one lease time plus two seconds (asserted with a
/// factor of 3), none is lost, none is finished twice; also O-32 for the servers that are left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_a_killed_instance_go_on_elsewhere() {
    let mut world = World::new(TestDb::new().await, 3, 16, 10, Duration::from_secs(8)).await;
    for tenant in 0..10 {
        world.turn(tenant).await;
        world.turn(tenant).await;
    }
    world
        .until_count("SELECT count(*) FROM run_leases", 20)
        .await;
    let victim = world
        .servers
        .iter()
        .map(|server| server.instance)
        .max_by_key(ToString::to_string)
        .expect("servers");
    let mut most = (victim, Vec::new());
    for server in &world.servers {
        let held = world.held_by(server.instance).await;
        if held.len() > most.1.len() {
            most = (server.instance, held);
        }
    }
    let (victim, held) = most;
    assert!(!held.is_empty());
    let index = world
        .servers
        .iter()
        .position(|server| server.instance == victim)
        .expect("victim");
    world.servers[index].process.kill9();
    let took = world.until_elsewhere(&held, victim).await;
    println!(
        "{} runs of a killed instance ran elsewhere after {took:?} (lease {LEASE:?})",
        held.len()
    );
    assert!(took < (LEASE + Duration::from_secs(2)) * 3, "took {took:?}");
    world.until_all_succeeded().await;
    let lost = world
        .count("SELECT count(*) FROM run_attempts WHERE outcome = 'lease_lost'")
        .await;
    assert!(
        (1..=i64::try_from(held.len()).expect("small")).contains(&lost),
        "{lost} leases were lost where the killed instance held {}",
        held.len()
    );
}

/// R1.7: a drained instance hands its runs back; that costs no attempt and nobody waits for a lease to run out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_instance_hands_its_runs_back() {
    let mut world = World::new(TestDb::new().await, 2, 8, 4, Duration::from_secs(30)).await;
    for tenant in 0..4 {
        world.turn(tenant).await;
        world.turn(tenant).await;
    }
    world
        .until_count("SELECT count(*) FROM run_leases", 8)
        .await;
    let (index, held) = world.busiest().await;
    let instance = world.servers[index].instance;
    world.servers[index].process.term();
    world.until_elsewhere(&held, instance).await;
    let status = world.servers[index]
        .process
        .wait(Duration::from_mins(1))
        .await;
    assert!(status.success(), "{}", world.logs());
    assert_eq!(
        world
            .count("SELECT count(*) FROM run_attempts WHERE outcome = 'lease_lost'")
            .await,
        0
    );
    assert_eq!(
        world
            .count("SELECT count(*) FROM run_leases WHERE attempt > 1")
            .await,
        0,
        "a hand-back costs no attempt"
    );
}
