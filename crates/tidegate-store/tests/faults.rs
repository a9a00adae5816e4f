//! Faults between the steps of a transaction: all of it happened, or none (O-05).

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod rig;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sqlx::Connection as _;

use rig::{DAY_MS, World, report_of, tenant};
use serde_json::Value;
use tidegate_model::{
    ConversationId, RunId, TenantId,
    digest::Digest,
    effect::{EffectOutcome, ReviewVerdict},
    run::{QuotaBucket, RunKind, RunState},
};
use tidegate_policy::retry::Report;
use tidegate_store::{
    Author,
    attempts::{close::Closer, prune::Position, resolve::Resolution},
    effects::Intent,
};

/// What happens at a failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The statement fails.
    Error,
    /// The task dies.
    Panic,
    /// The database ends the session.
    Terminated,
    /// The caller goes away while the transaction is open.
    CallerGone,
}

const FAULTS: [Fault; 4] = [
    Fault::Error,
    Fault::Panic,
    Fault::Terminated,
    Fault::CallerGone,
];

/// Runs `step` with a fault at `point`; the step's own outcome does not matter, only what it left behind.
///
/// Nothing here blocks a thread of the runtime for longer than the fault takes: one that is paused may hold the driver that
/// all the others wait for.
async fn with_fault<F, T>(world: &World, point: &'static str, fault: Fault, step: F)
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        gone.await.expect("go");
        step.await
    });
    let hit = Arc::new(AtomicBool::new(false));
    let (seen, caller, url) = (Arc::clone(&hit), task.abort_handle(), world.db.url());
    match fault {
        Fault::Error => fail::cfg(point, "1*return"),
        Fault::Panic => fail::cfg(point, "1*panic"),
        Fault::Terminated => fail::cfg_callback(point, move || {
            if !seen.swap(true, Ordering::SeqCst) {
                terminate_sessions(&url);
            }
        }),
        Fault::CallerGone => fail::cfg_callback(point, move || {
            seen.store(true, Ordering::SeqCst);
            caller.abort();
        }),
    }
    .expect("failpoint");
    go.send(()).expect("task");
    let _outcome = task.await;
    fail::remove(point);
    world.until_quiet().await;
    if matches!(fault, Fault::Terminated | Fault::CallerGone) {
        assert!(hit.load(Ordering::SeqCst), "{point} was reached");
    }
}

/// Ends every session that stands inside a transaction, from a thread and a connection of its own.
fn terminate_sessions(url: &str) {
    let url = url.to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        runtime.block_on(async {
            let mut connection = sqlx::PgConnection::connect(&url).await.expect("connect");
            sqlx::query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND state = 'idle in transaction'",
            )
            .execute(&mut connection)
            .await
            .expect("terminate");
        });
    })
    .join()
    .expect("terminate");
}

/// O-05, O-06: at each point of a claim and of a close, by each fault: the run is claimable or held, never lost or doubled,
/// and slots are live leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_step_happens_whole_or_not_at_all() {
    let _scenario = fail::FailScenario::setup();
    let world = Arc::new(World::new(&["acme"]).await);
    break_claims(&world).await;
    break_closes(&world).await;
    break_submissions(&world).await;
    assert_eq!(
        world
            .count("SELECT count(*) FROM run_ends WHERE state <> 'succeeded'")
            .await,
        0
    );
}

/// Between candidates, slot and lease.
async fn break_claims(world: &Arc<World>) {
    let acme = tenant("acme");
    for point in ["open_background_between", "open_background_before_commit"] {
        for fault in FAULTS {
            world.submit(&acme, RunKind::BackgroundWork).await;
            let (inner, who) = (Arc::clone(world), acme.clone());
            with_fault(world, point, fault, async move {
                inner
                    .claim(&who, QuotaBucket::Background, 1, Some(1), 30_000)
                    .await
            })
            .await;
            world.audit().await;
            // A caller that went away after the point has its lease, which nobody renews; any other left the run queued.
            world.expire_leases().await;
            finish_all(world).await;
        }
    }
}

/// Between lease, attempt and end.
async fn break_closes(world: &Arc<World>) {
    let acme = tenant("acme");
    for point in ["close_before_write", "close_before_commit"] {
        for fault in FAULTS {
            world.submit(&acme, RunKind::BackgroundWork).await;
            let lease = world
                .claim(&acme, QuotaBucket::Background, 1, Some(1), 30_000)
                .await
                .remove(0);
            let inner = Arc::clone(world);
            with_fault(world, point, fault, async move {
                inner
                    .store
                    .fleet()
                    .close_attempts(
                        vec![report_of(&lease, Report::Completed)],
                        Closer::Holder,
                        &rig::rules(),
                    )
                    .await
                    .expect("close")
            })
            .await;
            world.audit().await;
            world.expire_leases().await;
            finish_all(world).await;
        }
    }
}

/// Before and after the statement that writes runs, and between the steps of a turn.
async fn break_submissions(world: &Arc<World>) {
    let acme = tenant("acme");
    for fault in [Fault::Error, Fault::Panic, Fault::CallerGone] {
        for point in ["submit_before_write", "submit_after_write"] {
            let (inner, who) = (Arc::clone(world), acme.clone());
            with_fault(world, point, fault, async move {
                inner.submit(&who, RunKind::BackgroundWork).await
            })
            .await;
            world.audit().await;
            finish_all(world).await;
        }
    }
    for fault in FAULTS {
        for point in ["submit_before_place", "submit_before_commit"] {
            let conversation = world.conversation(&acme).await;
            let (inner, who) = (Arc::clone(world), acme.clone());
            with_fault(world, point, fault, async move {
                inner.submit_turn(&who, conversation).await
            })
            .await;
            world.audit().await;
            finish_all(world).await;
        }
    }
}

/// Takes over what is lost and completes all that is there.
async fn finish_all(world: &World) {
    let acme = tenant("acme");
    let fleet = world.store.fleet();
    for lease in fleet.expired_leases("main", 10).await.expect("expired") {
        let report = tidegate_store::attempts::close::CloseReport {
            lease,
            report: Report::LeaseLost,
            detail: None,
            tokens: 0,
            result: None,
            messages: Vec::new(),
            wait: None,
        };
        let closed = fleet
            .close_attempts(vec![report], Closer::Takeover, &rig::rules())
            .await
            .expect("takeover");
        assert_eq!(closed.len(), 1);
    }
    for bucket in [QuotaBucket::Background, QuotaBucket::Foreground] {
        loop {
            let leases = world.claim(&acme, bucket, 5, Some(1), 30_000).await;
            let Some(lease) = leases.first() else { break };
            world.close(lease, Report::Completed, Closer::Holder).await;
        }
    }
    for table in ["run_queue", "run_leases", "background_slots", "run_parked"] {
        let left: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
                .fetch_one(world.db.pool())
                .await
                .expect("count");
        assert_eq!(left, 0, "{table}");
    }
    world.audit().await;
}

/// R3.14: a firing that is cut off between its writes and its commit fires the due time once, when it is done again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_due_time_fires_once_whatever_cuts_its_firing_off() {
    let _scenario = fail::FailScenario::setup();
    let world = Arc::new(World::new(&["acme"]).await);
    for (index, fault) in FAULTS.into_iter().enumerate() {
        let schedule = format!("s{index}");
        world.schedule(&tenant("acme"), &schedule).await;
        let inner = Arc::clone(&world);
        with_fault(&world, "fire_before_commit", fault, async move {
            inner
                .store
                .fleet()
                .fire_schedules(rig::due::fire_terms(), 10)
                .await
        })
        .await;
        let fleet = world.store.fleet();
        for _ in 0..2 {
            let fired = fleet.fire_schedules(rig::due::fire_terms(), 10).await;
            assert!(fired.expect("fire").failures.is_empty());
        }
        let runs: i64 = sqlx::query_scalar("SELECT count(*) FROM agent_runs WHERE schedule = $1")
            .bind(&schedule)
            .fetch_one(world.db.pool())
            .await
            .expect("count");
        assert_eq!(runs, 1, "{fault:?}");
        world.audit().await;
    }
}

/// R24.3: pruning that is cut off leaves a run whole or takes it whole, and goes on the next time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_is_pruned_whole_or_not_at_all() {
    let _scenario = fail::FailScenario::setup();
    let world = Arc::new(World::new(&["acme"]).await);
    for fault in FAULTS {
        world.submit(&tenant("acme"), RunKind::BackgroundWork).await;
        finish_all(&world).await;
        let inner = Arc::clone(&world);
        with_fault(&world, "prune_before_commit", fault, async move {
            let fleet = inner.store.fleet();
            fleet.prune_runs(0, &Position::default(), 10).await
        })
        .await;
        world.audit().await;
        let fleet = world.store.fleet();
        let pruned = fleet.prune_runs(0, &Position::default(), 10).await;
        assert_eq!(pruned.expect("prune").next, None);
        for table in ["agent_runs", "run_ends", "run_attempts", "run_events"] {
            let count = format!("SELECT count(*) FROM {table}");
            let left: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count))
                .fetch_one(world.db.pool())
                .await
                .expect("count");
            assert_eq!(left, 0, "{table} {fault:?}");
        }
    }
}

/// O-29: callers that are cancelled at random moments never leave a connection inside a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancelled_callers_leave_clean_connections() {
    let _scenario = fail::FailScenario::setup();
    let acme = tenant("acme");
    let world = Arc::new(World::new(&["acme"]).await);
    for round in 0_u64..300 {
        let (inner, who) = (Arc::clone(&world), acme.clone());
        let task = tokio::spawn(async move {
            inner.submit(&who, RunKind::BackgroundWork).await;
            let leases = inner
                .claim(&who, QuotaBucket::Background, 1, Some(1), 30_000)
                .await;
            for lease in &leases {
                inner.close(lease, Report::Released, Closer::Holder).await;
            }
        });
        tokio::time::sleep(std::time::Duration::from_micros(round * 37 % 6_000)).await;
        task.abort();
        let _outcome = task.await;
    }
    world.until_quiet().await;
    assert_eq!(
        world
            .count(
                "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                 WHERE a.datname = current_database() AND a.state LIKE 'idle%' AND l.locktype <> 'virtualxid'"
            )
            .await,
        0,
        "no idle session holds a lock"
    );
    world.audit().await;
    world.expire_leases().await;
    // Normal traffic goes on.
    let run = world.submit(&acme, RunKind::BusinessTask).await;
    let leases = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await;
    assert_eq!(leases[0].run_id, run);
}

/// R4.5: at each point of the journal, by each fault: what was to be recorded is recorded whole or not at all, so that a
/// takeover goes to a person exactly where an intent stands without its outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_journal_is_written_whole_or_not_at_all() {
    let _scenario = fail::FailScenario::setup();
    let world = Arc::new(World::new(&["acme"]).await);
    for fault in FAULTS {
        for (point, expected) in [
            ("intent_before_commit", RunState::Queued),
            ("outcome_before_commit", RunState::Review),
        ] {
            let state = break_journal(&world, point, fault).await;
            // A commit that the caller no longer waits for may happen.
            let kept = fault == Fault::CallerGone;
            assert!(state == expected || kept, "{point} {fault:?}: {state}");
            world.audit().await;
            break_verdict(&world, fault).await;
            sqlx::query(
                "TRUNCATE run_queue, run_parked, run_effects, run_events, agent_runs, run_attempts",
            )
            .execute(world.db.pool())
            .await
            .expect("truncate");
        }
    }
}

/// Breaks one step of the journal, and takes the run over; where it is then.
async fn break_journal(world: &Arc<World>, point: &'static str, fault: Fault) -> RunState {
    let acme = tenant("acme");
    world.submit(&acme, RunKind::BusinessTask).await;
    let mut leases = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await;
    let lease = leases.pop().expect("lease");
    let intent = Intent {
        call_id: "c1".parse().expect("call id"),
        tool: "files/write".to_owned(),
        arguments_digest: Digest([1; 32]),
        idempotent: false,
    };
    let (fleet, held) = (world.store.fleet(), rig::held(&lease));
    if point == "intent_before_commit" {
        let step = async move { fleet.record_intent("main", &held, intent, 10).await };
        with_fault(world, point, fault, step).await;
    } else {
        let call = intent.call_id.clone();
        fleet
            .record_intent("main", &held, intent, 10)
            .await
            .expect("intent");
        let step = async move {
            let done = EffectOutcome::Done;
            fleet
                .record_outcome("main", &held, call, done, Value::Null)
                .await
        };
        with_fault(world, point, fault, step).await;
    }
    world.expire_leases().await;
    let closed = world
        .close(&lease, Report::LeaseLost, Closer::Takeover)
        .await;
    closed[0].state()
}

/// Breaks the verdict on a run in review: it is in review still, or queued.
async fn break_verdict(world: &Arc<World>, fault: Fault) {
    let review = "SELECT count(*) FROM run_parked WHERE why = 'review'";
    if world.count(review).await == 0 {
        return;
    }
    let run: uuid::Uuid = sqlx::query_scalar("SELECT run_id FROM run_parked")
        .fetch_one(world.db.pool())
        .await
        .expect("run");
    let scoped = world.store.tenant(&tenant("acme"));
    let resolution = Resolution {
        run_id: RunId::from_uuid(run),
        verdict: ReviewVerdict::ConfirmDone,
        call_id: None,
        note: None,
        by: Author::system(),
    };
    let step = async move { scoped.resolve_review(resolution, DAY_MS).await };
    with_fault(world, "resolve_before_commit", fault, step).await;
    let queued = world.count("SELECT count(*) FROM run_queue").await;
    let recorded = "SELECT count(*) FROM run_effects WHERE outcome IS NOT NULL";
    assert_eq!(world.count(recorded).await, queued, "{fault:?}");
    assert_eq!(world.count(review).await, 1 - queued, "{fault:?}");
    assert!(queued == 0 || fault == Fault::CallerGone, "{fault:?}");
    world.audit().await;
}

/// O-33, R3.1: a write under a key and what is kept of it happen together or not at all, by each fault; the repeat then
/// does it, and the one after is answered the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_and_its_key_are_kept_together() {
    let _scenario = fail::FailScenario::setup();
    let acme = tenant("acme");
    let world = Arc::new(World::new(&["acme"]).await);
    for (round, fault) in (1_i64..).zip(FAULTS) {
        let key = format!("key-{round}");
        let begin = move |world: Arc<World>, who: TenantId| {
            let route = "POST /v1/conversations".to_owned();
            let intent =
                tidegate_store::Intent::new(Some(who.clone()), key.clone(), route, [1; 32]);
            async move {
                let tenant = world.store.tenant(&who);
                let begun =
                    tenant.create_conversation(ConversationId::new(), None, None, Some(&intent));
                (begun.await, intent.is_replayed())
            }
        };
        let step = begin(Arc::clone(&world), acme.clone());
        with_fault(&world, "once_before_commit", fault, step).await;
        let kept = world
            .count("SELECT count(*) FROM idempotency_records")
            .await;
        let made = world.count("SELECT count(*) FROM conversations").await;
        assert_eq!(kept, made, "{fault:?}");
        let (first, _) = begin(Arc::clone(&world), acme.clone()).await;
        let (again, replayed) = begin(Arc::clone(&world), acme.clone()).await;
        assert_eq!(first.expect("begun"), again.expect("begun"), "{fault:?}");
        assert!(replayed, "{fault:?}");
        let made = world.count("SELECT count(*) FROM conversations").await;
        assert_eq!(made, round, "{fault:?}");
    }
}
