//! Where a run's time went.

use std::collections::BTreeMap;

use tidegate_engine::runs;
use tidegate_model::{
    Code, PoolId, RunId,
    api::RunExplain,
    queue_reason::QueueReason,
    run::{AttemptOutcome, RunState},
};

use crate::rig::{World, member, settings, task};

async fn explain(world: &World, run: RunId) -> RunExplain {
    runs::explain::explain(&world.engine, &member("acme"), run)
        .await
        .expect("explain")
}

fn waits(explained: &RunExplain) -> BTreeMap<QueueReason, i64> {
    explained
        .waits
        .iter()
        .map(|wait| (wait.code, wait.waited_ms))
        .collect()
}

/// Moves what is written down of a run and its lane into the past, so that waits have lengths without waiting. All in one
/// transaction, whose `now()` is one time: what lies milliseconds apart on a loaded machine would be a wait of its own.
async fn age(world: &World, sql: &'static str) {
    sqlx::raw_sql(sql)
        .execute(world.db.pool())
        .await
        .expect("age");
}

/// R3.9, R21.2: time in the queue by cause, parked time by its own, attempts with their outcome.
#[tokio::test]
async fn explain_accounts_for_the_time_of_every_stage() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    world
        .fail(run, lease.fence, Code::ProviderFailed, 3_600_000)
        .await;
    // Accepted and queued 100 s ago, started after 60 s in which no pool offered it for 20 s; failed 30 s ago.
    age(
        &world,
        "ALTER TABLE agent_runs DISABLE TRIGGER ALL;
         UPDATE agent_runs SET created_at = now() - interval '100 s';
         UPDATE run_attempts SET queued_at = now() - interval '100 s',
             started_at = now() - interval '40 s', ended_at = now() - interval '30 s';
         UPDATE run_parked SET parked_at = now() - interval '30 s';
         INSERT INTO lane_waits SELECT 'main', 2, 'acme', class, 'NO_ELIGIBLE_POOL', '{}',
             now() - interval '90 s', now() - interval '70 s' FROM agent_runs;",
    )
    .await;
    let explained = explain(&world, run).await;
    let waits = waits(&explained);
    let near = |code, seconds: i64| {
        let found = waits.get(&code).copied().unwrap_or(0);
        assert!((found - seconds * 1_000).abs() < 3_000, "{code}: {waits:?}");
    };
    near(QueueReason::NoEligiblePool, 20);
    near(QueueReason::WaitingForWorker, 40);
    near(QueueReason::RetryBackoff, 30);
    assert_eq!(waits.len(), 3);
    assert_eq!(explained.attempts.len(), 1);
    let attempt = &explained.attempts[0];
    assert_eq!(attempt.outcome, Some(AttemptOutcome::Failed));
    assert_eq!(attempt.code, Some(Code::ProviderFailed));
    assert_eq!(attempt.holder, "w1#1");
    assert_eq!(
        explained.run.queue_reason.as_ref(),
        explained.reasons.first()
    );
    assert_eq!(explained.ahead_in_lane, None);
}

/// R3.9: a run knows how many stand before it, and a running one shows its lease.
#[tokio::test]
async fn explain_counts_the_runs_ahead_and_shows_the_lease() {
    let world = World::new(settings()).await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(world.submit(task("chat")).await);
    }
    let last = explain(&world, all[3]).await;
    assert_eq!(last.ahead_in_lane, Some(3));
    let leases = world.claim(&PoolId::builtin(), 1).await;
    assert_eq!(leases[0].run.run_id, all[0]);
    assert_eq!(explain(&world, all[3]).await.ahead_in_lane, Some(2));
    let first = explain(&world, all[0]).await;
    assert_eq!(first.run.state, RunState::Running);
    assert!(first.reasons.is_empty());
    assert_eq!(first.attempts[0].fence, leases[0].fence);
    assert!(first.attempts[0].lease_until.is_some());
    assert_eq!(first.attempts[0].ended_at, None);
}

/// R3.9: a cause that comes and goes is written as intervals, one that goes on as one.
#[tokio::test]
async fn causes_are_kept_as_intervals() {
    let world = World::new(settings()).await;
    let count = async |filter: &'static str| -> i64 {
        sqlx::query_scalar(filter)
            .fetch_one(world.db.pool())
            .await
            .expect("count")
    };
    let run = world.submit(task("nowhere")).await;
    assert_eq!(world.observe().await.opened, 1);
    let again = world.observe().await;
    assert_eq!((again.opened, again.closed), (0, 0));
    runs::cancel::cancel(&world.engine, &member("acme"), run)
        .await
        .expect("cancel");
    assert_eq!(world.observe().await.closed, 1);
    assert_eq!(
        count("SELECT count(*) FROM lane_waits WHERE to_at IS NULL").await,
        0
    );
    // Back within two seconds: the same interval goes on.
    world.submit(task("nowhere")).await;
    assert_eq!(world.observe().await.opened, 1);
    assert_eq!(count("SELECT count(*) FROM lane_waits").await, 1);
    assert_eq!(
        count("SELECT count(*) FROM lane_waits WHERE to_at IS NULL").await,
        1
    );
}

/// R3.9: a run that no pool could take since it came has not waited for a worker, although the first look at its lane came
/// after it.
#[tokio::test]
async fn the_first_cause_counts_from_the_beginning() {
    let world = World::new(settings()).await;
    let run = world.submit(task("nowhere")).await;
    age(
        &world,
        "ALTER TABLE agent_runs DISABLE TRIGGER ALL;
         UPDATE agent_runs SET created_at = now() - interval '2 s';
         UPDATE run_queue SET queued_at = now() - interval '2 s';",
    )
    .await;
    world.observe().await;
    let waits = waits(&explain(&world, run).await);
    assert_eq!(
        waits.keys().collect::<Vec<_>>(),
        [&QueueReason::NoEligiblePool]
    );
}
