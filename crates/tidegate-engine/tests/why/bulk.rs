//! Cancel and requeue in bulk, by filter (R3.10, R3.11).

use tidegate_engine::runs;
use tidegate_model::{
    Code, PoolId, RunId,
    api::{BulkOutcome, RunBudget, RunFilter},
    run::RunState,
};

use crate::rig::{World, member, settings, task};

async fn requeue(world: &World, filter: RunFilter) -> u64 {
    let outcome = runs::bulk::requeue_all(&world.engine, &member("acme"), filter).await;
    outcome.expect("requeue").changed
}

async fn states(world: &World, runs: &[RunId]) -> Vec<RunState> {
    let mut states = Vec::new();
    for run in runs {
        states.push(world.get(*run).await.state);
    }
    states
}

/// Two dead letters, a run that gave up by itself, and one whose budget is spent.
async fn four_failed(world: &World) -> Vec<RunId> {
    let mut runs = Vec::new();
    for (max_attempts, tokens) in [(1, None), (1, None), (5, None), (1, Some(10))] {
        let mut request = task("chat");
        request.max_attempts = Some(max_attempts);
        request.budget = tokens.map(|tokens| RunBudget {
            tokens: Some(tokens),
            execution_ms: None,
        });
        runs.push(world.submit(request).await);
    }
    for lease in world.claim(&PoolId::builtin(), 10).await {
        let run = lease.run.run_id;
        let code = if run == runs[2] {
            // Not retryable: failed, and no dead letter.
            Code::Cancelled
        } else {
            Code::WorkerFailed
        };
        let used = if run == runs[3] { 10 } else { 0 };
        world.fail_having_used(&lease, code, used).await;
    }
    runs
}

/// R3.11: a bulk requeue takes dead letters unless all failed runs are asked for; what may not come back stays where it
/// is, as in a single requeue.
#[tokio::test]
async fn dead_letters_come_back_together() {
    let world = World::new(settings()).await;
    let runs = four_failed(&world).await;
    assert_eq!(states(&world, &runs).await, [RunState::Failed; 4]);
    let dead = RunFilter {
        dead_letters: Some(true),
        ..RunFilter::default()
    };
    let listed = runs::list::list(&world.engine, &member("acme"), dead).await;
    let listed: Vec<RunId> = listed
        .expect("list")
        .items
        .iter()
        .map(|r| r.run_id)
        .collect();
    assert_eq!(listed, [runs[1], runs[0]], "newest first");
    assert_eq!(requeue(&world, RunFilter::default()).await, 2);
    assert_eq!(
        states(&world, &runs).await,
        [
            RunState::Queued,
            RunState::Queued,
            RunState::Failed,
            RunState::Failed
        ]
    );
    let failed = RunFilter {
        state: Some(RunState::Failed),
        ..RunFilter::default()
    };
    assert_eq!(
        requeue(&world, failed).await,
        1,
        "a spent budget stays spent"
    );
    let spent = runs::requeue::requeue(&world.engine, &member("acme"), runs[3]).await;
    let spent = spent.expect_err("refused");
    assert_eq!(spent.code(), Code::StateConflict);
    assert!(spent.to_string().contains("budget"), "{spent}");
    let running = RunFilter {
        state: Some(RunState::Running),
        ..RunFilter::default()
    };
    let refused = runs::bulk::requeue_all(&world.engine, &member("acme"), running).await;
    assert_eq!(refused.expect_err("refused").code(), Code::InvalidArgument);
}

/// R3.10: a bulk cancel ends what waits, tells what runs, over as many pages as there are, and touches nothing else.
#[tokio::test]
async fn a_filter_cancels_page_by_page() {
    let world = World::new(settings()).await;
    let running = world.submit(task("chat")).await;
    world.expect_start(&PoolId::builtin(), running).await;
    let mut waiting = Vec::new();
    for _ in 0..205 {
        waiting.push(world.submit(task("chat")).await);
    }
    let other = world.submit(task("other")).await;
    let chat = RunFilter {
        capability: Some("chat".parse().expect("capability")),
        ..RunFilter::default()
    };
    let acme = member("acme");
    let cancel = || runs::bulk::cancel_all(&world.engine, &acme, chat.clone());
    let expected = BulkOutcome {
        changed: 205,
        requested: 1,
    };
    assert_eq!(cancel().await.expect("cancel"), expected);
    let nothing = BulkOutcome {
        changed: 0,
        requested: 0,
    };
    assert_eq!(cancel().await.expect("again"), nothing);
    assert!(world.get(running).await.cancel_requested);
    assert_eq!(world.get(other).await.state, RunState::Queued);
    assert_eq!(world.get(waiting[204]).await.state, RunState::Cancelled);
}

/// Bad input: a limit is judged as the list judges it, before anything is changed; a good one bounds what is changed.
#[tokio::test]
async fn a_limit_bounds_a_bulk_call() {
    let world = World::new(settings()).await;
    let acme = member("acme");
    let mut queued = Vec::new();
    for _ in 0..3 {
        queued.push(world.submit(task("chat")).await);
    }
    let limited = |limit| RunFilter {
        limit: Some(limit),
        ..RunFilter::default()
    };
    for limit in [0, 201, 1_000_000_000] {
        let cancel = runs::bulk::cancel_all(&world.engine, &acme, limited(limit)).await;
        let requeue = runs::bulk::requeue_all(&world.engine, &acme, limited(limit)).await;
        for refused in [cancel, requeue] {
            let problem = refused.expect_err("refused").problem();
            assert_eq!(problem.code, Code::InvalidArgument, "{limit}");
            assert_eq!(problem.field.as_deref(), Some("limit"), "{limit}");
        }
    }
    assert_eq!(states(&world, &queued).await, [RunState::Queued; 3]);
    let two = runs::bulk::cancel_all(&world.engine, &acme, limited(2)).await;
    assert_eq!(two.expect("cancel").changed, 2);
    assert_eq!(
        states(&world, &queued).await,
        [RunState::Queued, RunState::Cancelled, RunState::Cancelled],
        "what the list shows first"
    );
}
