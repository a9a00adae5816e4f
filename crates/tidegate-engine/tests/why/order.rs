//! Who comes first: what tenants were charged outlives the instance that charged them, and hints reach the others.

use serde_json::json;
use tidegate_engine::{Engine, Principal, claims, runs, worker};
use tidegate_model::{
    PoolId,
    api::{AttemptUsage, CompleteRun, Lease},
};
use tokio_util::sync::CancellationToken;

use crate::rig::{World, claim_on, member, settings, task};

async fn finish(engine: &Engine, lease: &Lease, tokens: i64) {
    worker::close::complete(
        engine,
        &Principal::built_in_worker(PoolId::builtin()),
        lease.run.run_id,
        CompleteRun {
            fence: lease.fence,
            result: json!({}),
            messages: Vec::new(),
            usage: AttemptUsage { tokens },
        },
    )
    .await
    .expect("complete");
}

/// R3.8, R3.12: runs are charged what they cost, and an instance that starts later goes on in the order that the first one
/// left.
#[tokio::test]
async fn a_restart_favours_nobody() {
    let world = World::new(settings()).await;
    for tenant in ["acme", "globex"] {
        for _ in 0..5 {
            let caller = member(tenant);
            runs::submit::submit(&world.engine, &caller, task("chat"), None)
                .await
                .expect("submit");
        }
    }
    // One run each; acme's costs as much as a hundred of the usual ones.
    for lease in world.claim(&PoolId::builtin(), 2).await {
        let dear = lease.run.tenant.as_str() == "acme";
        finish(&world.engine, &lease, if dear { 100_000 } else { 0 }).await;
    }
    claims::passes::write(&world.engine).await.expect("store");

    let restarted = world.instance(settings()).await;
    for _ in 0..4 {
        let leases = claim_on(&restarted, &PoolId::builtin(), 1, 5_000).await;
        assert_eq!(leases[0].run.tenant.as_str(), "globex");
        finish(&restarted, &leases[0], 0).await;
    }
    // Nobody starves: with nobody before it the dear tenant is served.
    let leases = claim_on(&restarted, &PoolId::builtin(), 1, 5_000).await;
    assert_eq!(leases[0].run.tenant.as_str(), "acme");
}

/// R3.8: a hint of another instance brings a lane into the book long before a reading would.
#[tokio::test]
async fn hints_of_other_instances_are_heard() {
    let patient = || {
        let mut settings = settings();
        // Neither a reading nor a poll finds the run in the time of this test.
        settings.view_age_ms = 600_000;
        settings.claim_poll_ms = 600_000;
        settings
    };
    let world = World::new(settings()).await;
    let other = world.instance(patient()).await;
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    tokio::spawn(claims::wake::listen(other.clone(), stop.clone()));
    tokio::spawn(claims::wake::publish(world.engine.clone(), stop));
    let waits = tokio::spawn({
        let other = other.clone();
        async move { claim_on(&other, &PoolId::builtin(), 1, 20_000).await }
    });
    while other.claims().waiting().is_empty() {
        tokio::task::yield_now().await;
    }
    let run = world.submit(task("chat")).await;
    let leases = waits.await.expect("claim");
    assert_eq!(leases.first().map(|lease| lease.run.run_id), Some(run));
}
