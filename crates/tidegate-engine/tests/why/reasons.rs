//! Each queue reason that can occur: a run is brought into it, the shown remedy is followed, and the run starts.

use tidegate_engine::{instances, pools, runs, settings::Settings, tenants};
use tidegate_model::{
    Code, PoolId,
    api::{RunFilter, SetEpoch, SetTenantState},
    contracts::CapabilityDescriptor,
    principal::{Role, TenantState},
    queue_reason::QueueReason,
    run::{RunKind, RunState},
};

use crate::rig::{World, acme, claim_on, member, operator, principal, settings, task};

/// R3.9: nobody executes; a worker is started.
#[tokio::test]
async fn waiting_for_worker_ends_when_one_is_started() {
    let world = World::new(Settings {
        run_execution_concurrency: 0,
        ..settings()
    })
    .await;
    let run = world.submit(task("chat")).await;
    let reason = world
        .expect_reason(run, QueueReason::WaitingForWorker)
        .await;
    assert!(reason.remedy.starts_with("start a worker"), "{reason:?}");
    world.expect_start(&PoolId::builtin(), run).await;
}

/// R3.3, R3.9: the tenant's foreground is full; one of its runs is cancelled.
#[tokio::test]
async fn the_foreground_cap_ends_when_a_running_turn_is_cancelled() {
    let world = World::new(settings()).await;
    let mut turns = Vec::new();
    for _ in 0..3 {
        let conversation = world.conversation().await;
        turns.push(world.turn(conversation).await);
    }
    let leases = world.claim(&PoolId::builtin(), 10).await;
    assert_eq!(leases.len(), 2, "the soft cap is 2");
    world.expect_no_start(&PoolId::builtin()).await;
    let reason = world
        .expect_reason(turns[2], QueueReason::TenantForegroundCap)
        .await;
    assert_eq!(reason.facts, serde_json::json!({"running": 2, "cap": 2}));
    assert!(reason.remedy.contains("tidegate run list --state running"));
    assert!(reason.remedy.contains("tidegate run cancel"));

    let running = RunFilter {
        state: Some(RunState::Running),
        ..RunFilter::default()
    };
    let page = runs::list::list(&world.engine, &member("acme"), running)
        .await
        .expect("list");
    let victim = page.items[0].run_id;
    runs::cancel::cancel(&world.engine, &member("acme"), victim)
        .await
        .expect("cancel");
    let lease = leases
        .iter()
        .find(|lease| lease.run.run_id == victim)
        .expect("leased");
    // The worker obeys at its next renewal.
    world.fail(victim, lease.fence, Code::Cancelled, 0).await;
    world.expect_start(&PoolId::builtin(), turns[2]).await;
}

/// R3.4, R3.9: the tenant's background is full; its run is cancelled.
#[tokio::test]
async fn the_background_cap_ends_when_the_running_one_is_cancelled() {
    let world = World::new(settings()).await;
    let mut background = Vec::new();
    for _ in 0..2 {
        let kind = RunKind::BackgroundWork;
        let view = runs::submit::submit_as(&world.engine, &member("acme"), kind, task("chat"))
            .await
            .expect("submit");
        background.push(view.run_id);
    }
    let leases = world.claim(&PoolId::builtin(), 10).await;
    assert_eq!(leases.len(), 1, "the hard cap is 1");
    let (running, waiting) = (leases[0].run.run_id, background[1]);
    world
        .expect_reason(waiting, QueueReason::TenantBackgroundCap)
        .await;
    runs::cancel::cancel(&world.engine, &member("acme"), running)
        .await
        .expect("cancel");
    world
        .fail(running, leases[0].fence, Code::Cancelled, 0)
        .await;
    world.expect_start(&PoolId::builtin(), waiting).await;
}

/// R3.6, R3.9: no instance runs background; one that does is started.
#[tokio::test]
async fn background_disabled_ends_with_an_instance_that_allows_it() {
    let world = World::new(Settings {
        run_execution_background_concurrency: 0,
        ..settings()
    })
    .await;
    let kind = RunKind::BackgroundWork;
    let run = runs::submit::submit_as(&world.engine, &member("acme"), kind, task("chat"))
        .await
        .expect("submit")
        .run_id;
    let reason = world
        .expect_reason(run, QueueReason::BackgroundDisabled)
        .await;
    assert!(
        reason
            .remedy
            .contains("RUN_EXECUTION_BACKGROUND_CONCURRENCY")
    );
    let restarted = world.instance(settings()).await;
    world.observe().await;
    let reason = world
        .expect_reason(run, QueueReason::WaitingForWorker)
        .await;
    assert!(reason.remedy.starts_with("nothing to do"), "{reason:?}");
    let leases = claim_on(&restarted, &PoolId::builtin(), 1, 5_000).await;
    assert_eq!(leases[0].run.run_id, run);
}

/// R3.7, R3.9: an earlier turn keeps the conversation busy, with its id; cancelling it frees the conversation.
#[tokio::test]
async fn conversation_busy_names_the_turn_that_is_to_be_cancelled() {
    let world = World::new(settings()).await;
    let conversation = world.conversation().await;
    let first = world.turn(conversation).await;
    let second = world.turn(conversation).await;
    let reason = world
        .expect_reason(second, QueueReason::ConversationBusy)
        .await;
    assert_eq!(reason.facts["activeRun"], first.to_string());
    assert!(
        reason
            .remedy
            .contains(&format!("tidegate run cancel {first}"))
    );
    runs::cancel::cancel(&world.engine, &member("acme"), first)
        .await
        .expect("cancel");
    world.expect_start(&PoolId::builtin(), second).await;
}

async fn publish(world: &World, pool: &PoolId, epoch: i64, capability: &str) {
    let controller = principal(Role::PoolController, None);
    let descriptor = CapabilityDescriptor::new(
        pool.clone(),
        epoch,
        vec![capability.parse().expect("capability")],
        tidegate_testkit::lasting_health(),
    );
    pools::publish(&world.engine, &controller, pool, epoch, descriptor)
        .await
        .expect("publish");
    let request = SetEpoch {
        expected: None,
        active: epoch,
        draining: None,
    };
    pools::set_epoch(&world.engine, &controller, pool, request)
        .await
        .expect("activate");
}

/// R3.9, R5.3: no pool offers it, each with its reason; one that does is published and activated.
#[tokio::test]
async fn no_eligible_pool_ends_with_a_descriptor() {
    let world = World::new(settings()).await;
    let run = world.submit(task("analytics.bi_query")).await;
    let reason = world.expect_reason(run, QueueReason::NoEligiblePool).await;
    assert_eq!(
        reason.facts["pools"],
        serde_json::json!([{"pool": "builtin", "reason": "CAPABILITY_MISSING"}])
    );
    let pool: PoolId = "analysts".parse().expect("pool");
    publish(&world, &pool, 1, "analytics.bi_query").await;
    world.observe().await;
    let reason = world
        .expect_reason(run, QueueReason::WaitingForWorker)
        .await;
    assert!(reason.remedy.contains("analysts"), "{reason:?}");
    world.expect_start(&pool, run).await;
}

/// R3.9: what no active descriptor could serve ends as failed after the grace, with the clause; others are left alone.
#[tokio::test]
async fn unroutable_runs_end_as_unsatisfiable_after_the_grace() {
    let world = World::new(Settings {
        unroutable_grace_ms: 300,
        ..settings()
    })
    .await;
    let lost = world.submit(task("no.such_thing")).await;
    let routable = world.submit(task("chat")).await;
    world.observe().await;
    assert_eq!(world.get(lost).await.state, RunState::Queued);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while world.observe().await.unsatisfiable == 0 {
        assert!(std::time::Instant::now() < deadline, "never ended");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let view = world.get(lost).await;
    assert_eq!(
        (view.state, view.code),
        (RunState::Failed, Some(Code::Unsatisfiable))
    );
    let detail = view.detail.expect("the clause");
    assert!(detail.contains("no.such_thing"), "{detail}");
    assert!(detail.contains("builtin: CAPABILITY_MISSING"), "{detail}");
    assert_eq!(world.get(routable).await.state, RunState::Queued);
}

/// R3.9: its time has not come; it is started now.
#[tokio::test]
async fn scheduled_ends_with_a_requeue() {
    let world = World::new(settings()).await;
    let mut request = task("chat");
    request.run_at = Some(world.now().await + chrono::TimeDelta::hours(1));
    let run = world.submit(request).await;
    let reason = world.expect_reason(run, QueueReason::Scheduled).await;
    world.expect_no_start(&PoolId::builtin()).await;
    assert!(
        reason
            .remedy
            .contains(&format!("tidegate run requeue {run}"))
    );
    runs::requeue::requeue(&world.engine, &member("acme"), run)
        .await
        .expect("requeue");
    world.expect_start(&PoolId::builtin(), run).await;
}

/// R3.9, R3.11: it backs off; it is tried again now.
#[tokio::test]
async fn retry_backoff_ends_with_a_requeue() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    world
        .fail(run, lease.fence, Code::ProviderFailed, 3_600_000)
        .await;
    let reason = world.expect_reason(run, QueueReason::RetryBackoff).await;
    assert_eq!(reason.facts["lastCode"], "PROVIDER_FAILED");
    assert!(reason.remedy.contains("attempt 2 of 5"), "{reason:?}");
    world.expect_no_start(&PoolId::builtin()).await;
    runs::requeue::requeue(&world.engine, &member("acme"), run)
        .await
        .expect("requeue");
    let again = world.expect_start(&PoolId::builtin(), run).await;
    assert_eq!(again.attempt, 2);
}

/// R2.6, R3.9: a suspended tenant's queued runs say so; they start when it is resumed.
#[tokio::test]
async fn runs_of_a_suspended_tenant_wait_for_it_to_be_resumed() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let set = async |state| {
        tenants::set_state(
            &world.engine,
            &operator(),
            &acme(),
            SetTenantState { state },
        )
        .await
        .expect("state");
    };
    set(TenantState::Suspended).await;
    let reason = world
        .expect_reason(run, QueueReason::WaitingForWorker)
        .await;
    assert!(reason.remedy.contains("tidegate tenant resume acme"));
    world.expect_no_start(&PoolId::builtin()).await;
    set(TenantState::Active).await;
    world.expect_start(&PoolId::builtin(), run).await;
}

/// R3.9: a dead instance's slots are not counted on.
#[tokio::test]
async fn slots_of_a_dead_instance_do_not_count() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    instances::heartbeat::beat(&world.engine)
        .await
        .expect("beat");
    let reason = world.reason(run).await;
    assert_eq!(reason.facts["pools"][0]["slots"], 8);
    sqlx::query("UPDATE instances SET seen_at = seen_at - interval '1 minute'")
        .execute(world.db.pool())
        .await
        .expect("dead");
    world.observe().await;
    let reason = world.reason(run).await;
    assert_eq!(reason.facts["pools"][0]["slots"], 0);
}

/// Only one instance writes down what blocks the lanes; another takes over when it is gone.
#[tokio::test]
async fn one_instance_observes_and_hands_over() {
    use tidegate_engine::lanes::observe;
    use tokio_util::sync::CancellationToken;

    let world = World::new(settings()).await;
    let other = world.instance(settings()).await;
    world.observe().await;
    assert!(!observe::observe(&other).await.expect("observe").on_duty);
    let stop = CancellationToken::new();
    stop.cancel();
    // Told to stop, the loop hands the duty back at once.
    observe::run(world.engine.clone(), stop).await;
    assert!(observe::observe(&other).await.expect("observe").on_duty);
}
