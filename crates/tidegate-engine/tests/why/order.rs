//! Who comes first: what tenants were charged outlives the instance that charged them, and hints reach the others.

use serde_json::json;
use tidegate_engine::{Engine, Principal, claims, runs, worker};
use tidegate_model::{
    PoolId,
    api::{AttemptAnswer, AttemptUsage, CompleteRun, Lease},
    run::RunState,
};
use tokio_util::sync::CancellationToken;

use crate::rig::{World, claim_on, member, settings, task};

async fn finish(engine: &Engine, lease: &Lease, tokens: i64) {
    complete(engine, lease, tokens).await.expect("complete");
}

async fn complete(
    engine: &Engine,
    lease: &Lease,
    tokens: i64,
) -> Result<AttemptAnswer, tidegate_engine::Error> {
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

/// R3.1: submissions and completions of one moment share statements; every caller gets its own run, and of two
/// completions of one attempt one is taken, and both are told so.
#[tokio::test]
async fn calls_of_one_moment_share_statements() {
    const CALLS: usize = 100;
    let world = World::new(settings()).await;
    let engine = &world.engine;
    let submit = || async { world.submit(task("chat")).await };
    let mut runs = futures::future::join_all((0..CALLS).map(|_| submit())).await;
    runs.sort_unstable();
    runs.dedup();
    assert_eq!(runs.len(), CALLS);
    let submitting = transactions(&world, "agent_runs").await;
    assert!(submitting <= 10, "{submitting} transactions");

    let leases = world.claim(&PoolId::builtin(), 100).await;
    assert_eq!(leases.len(), CALLS);
    let ends = leases
        .iter()
        .chain(leases.first())
        .map(|lease| complete(engine, lease, 0));
    let ends = futures::future::join_all(ends).await;
    for end in ends {
        assert_eq!(end.expect("taken, once").state, RunState::Succeeded);
    }
    let attempts: i64 = sqlx::query_scalar("SELECT count(*) FROM run_attempts")
        .fetch_one(world.db.pool())
        .await
        .expect("count");
    assert_eq!(usize::try_from(attempts), Ok(CALLS));
    let closing = transactions(&world, "run_attempts").await;
    assert!(closing <= 10, "{closing} transactions");
}

/// How many transactions wrote the rows of a table that is only inserted into.
async fn transactions(world: &World, table: &str) -> i64 {
    let query = format!("SELECT count(DISTINCT xmin::text) FROM {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(query))
        .fetch_one(world.db.pool())
        .await
        .expect("count")
}
