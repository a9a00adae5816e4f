//! The journal of effects, reviews and budgets against a real PostgreSQL (R4.5, R3.11).

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod rig;

use rig::{DAY_MS, World, held, report_of, tenant};
use serde_json::{Value, json};
use tidegate_model::{
    Code, RunId, TenantId,
    digest::canonical_digest,
    effect::{EffectOutcome, EffectSource, ReviewVerdict},
    event::EventKind,
    run::{QuotaBucket, RunKind, RunState, StopReason},
};
use tidegate_policy::retry::Report;
use tidegate_store::{
    Author,
    attempts::{
        close::Closer,
        open::OpenedLease,
        resolve::{Resolution, Resolved},
    },
    effects::{Intended, Intent, Outcome},
    events::Appended,
};

const FAILED: Report = Report::Failed {
    code: Code::ToolTimeout,
    retryable: true,
    retry_after_ms: 0,
};

fn intent(call: &str, idempotent: bool) -> Intent {
    Intent {
        call_id: call.parse().expect("call id"),
        tool: "files/write".to_owned(),
        arguments_digest: canonical_digest(&json!({"path": "a"})).expect("digest"),
        idempotent,
    }
}

async fn intend(world: &World, lease: &OpenedLease, intent: Intent) -> Intended {
    let fleet = world.store.fleet();
    fleet
        .record_intent("main", &held(lease), intent, 3)
        .await
        .expect("intent")
}

async fn settle(world: &World, lease: &OpenedLease, call: &str, result: Value) -> Outcome {
    let call = call.parse().expect("call id");
    let fleet = world.store.fleet();
    fleet
        .record_outcome("main", &held(lease), call, EffectOutcome::Done, result)
        .await
        .expect("outcome")
}

async fn claim(world: &World, acme: &TenantId) -> OpenedLease {
    let mut leases = world
        .claim(acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await;
    leases.pop().expect("a lease")
}

/// The lease runs out and is taken over; where the run is then.
async fn take_over(world: &World, lease: &OpenedLease) -> RunState {
    world.expire_leases().await;
    let closed = world
        .close(lease, Report::LeaseLost, Closer::Takeover)
        .await;
    closed[0].state()
}

/// A run in review over one call.
async fn in_review(world: &World, acme: &TenantId) -> RunId {
    let run = world.submit(acme, RunKind::BusinessTask).await;
    let lease = claim(world, acme).await;
    assert_eq!(
        intend(world, &lease, intent("c1", false)).await,
        Intended::Call
    );
    assert_eq!(take_over(world, &lease).await, RunState::Review);
    run
}

fn resolution(run_id: RunId, verdict: ReviewVerdict) -> Resolution {
    Resolution {
        run_id,
        verdict,
        call_id: None,
        note: Some("looked".to_owned()),
        by: Author::shell("op"),
    }
}

async fn resolve(world: &World, acme: &TenantId, resolution: Resolution) -> Resolved {
    let scoped = world.store.tenant(acme);
    scoped
        .resolve_review(resolution, DAY_MS)
        .await
        .expect("resolve")
}

/// R4.5: the same intent and the same outcome may be sent again, another one is refused; what is known is answered.
#[tokio::test]
async fn the_journal_says_each_thing_once() {
    let (acme, world) = (tenant("acme"), World::new(&["acme"]).await);
    world.submit(&acme, RunKind::BusinessTask).await;
    let lease = claim(&world, &acme).await;
    let result = json!({"text": "ok"});
    assert_eq!(
        settle(&world, &lease, "c1", result.clone()).await,
        Outcome::NoIntent
    );
    for _ in 0..2 {
        let taken = intend(&world, &lease, intent("c1", false)).await;
        assert_eq!(taken, Intended::Call, "a repeat whose answer was lost");
    }
    for _ in 0..2 {
        let taken = settle(&world, &lease, "c1", result.clone()).await;
        assert_eq!(taken, Outcome::Recorded);
    }
    assert_eq!(
        settle(&world, &lease, "c1", json!(1)).await,
        Outcome::Differs
    );
    let Intended::Recorded(known) = intend(&world, &lease, intent("c1", false)).await else {
        panic!("it is known");
    };
    assert_eq!(
        (known.outcome, known.source, known.result),
        (EffectOutcome::Done, EffectSource::Attempt, result)
    );
    let mut other = intent("c1", false);
    other.arguments_digest = canonical_digest(&json!("other")).expect("digest");
    assert_eq!(intend(&world, &lease, other).await, Intended::Differs);
    for call in ["c2", "c3", "c4"] {
        let taken = intend(&world, &lease, intent(call, false)).await;
        let most = if call == "c4" {
            Intended::TooMany
        } else {
            Intended::Call
        };
        assert_eq!(taken, most);
    }
}

/// R3.10, R18.3: an attempt that was told to stop makes no new call; what it was about to do before it may still say.
#[tokio::test]
async fn a_stopped_attempt_intends_nothing_new() {
    let world = World::new(&["acme"]).await;
    let acme = tenant("acme");
    world.submit(&acme, RunKind::BusinessTask).await;
    let lease = claim(&world, &acme).await;
    let first = intend(&world, &lease, intent("c1", false)).await;
    assert_eq!(first, Intended::Call);
    for why in StopReason::ALL {
        stop(&world, *why).await;
        let new = intend(&world, &lease, intent("c2", true)).await;
        assert_eq!(new, Intended::Stopped(*why));
        let again = intend(&world, &lease, intent("c1", false)).await;
        assert_eq!(again, Intended::Call, "a repeat whose answer was lost");
    }
    let recorded = settle(&world, &lease, "c1", json!("written")).await;
    assert_eq!(recorded, Outcome::Recorded);
}

/// R3.10: what was under way when an attempt was told to stop still stands on its stream; its end closes it.
#[tokio::test]
async fn a_stopped_attempt_says_how_what_was_under_way_ended() {
    let world = World::new(&["acme"]).await;
    let acme = tenant("acme");
    world.submit(&acme, RunKind::BusinessTask).await;
    let lease = claim(&world, &acme).await;
    let append = async |seq: i64, kind: EventKind, body: Value| {
        let fleet = world.store.fleet();
        fleet
            .append_events("main", &held(&lease), seq, &[(kind, body)])
            .await
            .expect("append")
    };
    let mut next = lease.next_seq;
    for why in StopReason::ALL {
        stop(&world, *why).await;
        let call = json!({"callId": "c1", "tool": "files/read", "isError": false});
        let usage = json!({"model": "m", "usage": {"inputTokens": 1, "outputTokens": 2}});
        for (kind, body) in [
            (EventKind::MessageDelta, json!({"text": "the tail"})),
            (EventKind::ToolFinished, call),
            (EventKind::ModelCalled, usage),
        ] {
            assert_eq!(append(next, kind, body).await, Appended::Written, "{why}");
            next += 1;
        }
    }
    stop(&world, StopReason::Cancel).await;
    let closed = world.close(&lease, Report::Completed, Closer::Holder).await;
    assert_eq!(closed[0].state(), RunState::Cancelled);
    let late = append(next, EventKind::WorkerNote, json!("late")).await;
    assert_eq!(late, Appended::LeaseLost);
    world.audit().await;
}

/// Every open lease is told to stop.
async fn stop(world: &World, why: StopReason) {
    sqlx::query("UPDATE run_leases SET stop_reason = $1, stop_requested_at = clock_timestamp()")
        .bind(why.as_str())
        .execute(world.db.pool())
        .await
        .expect("told to stop");
}

/// R4.5: only an open intent of a tool that may not be repeated needs a person, however the attempt ended; the last
/// attempt too.
#[tokio::test]
async fn an_open_intent_sends_the_run_to_review() {
    let (acme, world) = (tenant("acme"), World::new(&["acme"]).await);
    for (idempotent, settled, report, expected) in [
        (false, false, Report::LeaseLost, RunState::Review),
        (false, false, FAILED, RunState::Review),
        (false, false, Report::Released, RunState::Review),
        (false, true, Report::LeaseLost, RunState::Queued),
        (true, false, Report::LeaseLost, RunState::Queued),
        (false, false, Report::Completed, RunState::Succeeded),
    ] {
        let mut run = world.new_run(&acme, RunKind::BusinessTask).await;
        run.max_attempts = if expected == RunState::Review { 1 } else { 3 };
        let scoped = world.store.tenant(&acme);
        scoped.submit_run(run, DAY_MS).await.expect("submit");
        let lease = claim(&world, &acme).await;
        intend(&world, &lease, intent("c1", idempotent)).await;
        if settled {
            settle(&world, &lease, "c1", Value::Null).await;
        }
        let state = if report == Report::LeaseLost {
            take_over(&world, &lease).await
        } else {
            world.close(&lease, report, Closer::Holder).await[0].state()
        };
        assert_eq!(state, expected, "{idempotent} {settled} {report:?}");
        world.audit().await;
        let rest = world.count("SELECT count(*) FROM run_queue").await;
        assert_eq!(rest, i64::from(expected == RunState::Queued));
        sqlx::query("TRUNCATE run_queue, run_parked, agent_runs")
            .execute(world.db.pool())
            .await
            .expect("truncate");
    }
}

/// R4.5, R4.2: the next attempt calls an idempotent tool again under the same id, and gets what is known of the others;
/// what the old holder still says is refused.
#[tokio::test]
async fn the_next_attempt_goes_on_from_the_journal() {
    let (acme, world) = (tenant("acme"), World::new(&["acme"]).await);
    let run = world.submit(&acme, RunKind::BusinessTask).await;
    let late = claim(&world, &acme).await;
    intend(&world, &late, intent("done", false)).await;
    settle(&world, &late, "done", json!("kept")).await;
    intend(&world, &late, intent("open", true)).await;
    assert_eq!(take_over(&world, &late).await, RunState::Queued);
    let next = claim(&world, &acme).await;
    assert_eq!(
        settle(&world, &late, "open", Value::Null).await,
        Outcome::LeaseLost
    );
    assert_eq!(
        intend(&world, &late, intent("more", true)).await,
        Intended::LeaseLost
    );
    let known = intend(&world, &next, intent("done", false)).await;
    assert!(matches!(known, Intended::Recorded(known) if known.result == "kept"));
    assert_eq!(
        intend(&world, &next, intent("open", true)).await,
        Intended::Call
    );
    // The operator has taken the mark away meanwhile: nobody may call it again, and the run goes to a person.
    assert_eq!(take_over(&world, &next).await, RunState::Queued);
    world.db_due().await;
    let fleet = world.store.fleet();
    fleet.wake_due("main", DAY_MS, 10).await.expect("wake");
    let third = claim(&world, &acme).await;
    assert_eq!(
        intend(&world, &third, intent("open", false)).await,
        Intended::Unknown
    );
    let closed = world.close(&third, FAILED, Closer::Holder).await;
    assert_eq!(closed[0].state(), RunState::Review);
    let effects = world.store.tenant(&acme).effects(run).await;
    let effects = effects.expect("effects");
    assert_eq!(effects.len(), 2);
    assert_eq!(
        (effects[1].outcome, effects[1].attempt),
        (None, late.attempt)
    );
}

/// R4.5: each verdict, with the fact told to the next attempt, on the stream and in the audit log.
#[tokio::test]
async fn a_person_resolves_a_review_each_way() {
    let (acme, world) = (tenant("acme"), World::new(&["acme"]).await);
    for (verdict, known) in [
        (ReviewVerdict::ConfirmDone, EffectOutcome::Done),
        (ReviewVerdict::ConfirmNotDone, EffectOutcome::NotDone),
    ] {
        let run = in_review(&world, &acme).await;
        assert_eq!(
            resolve(&world, &acme, resolution(run, verdict)).await,
            Resolved::Done
        );
        let next = claim(&world, &acme).await;
        assert_eq!(next.run_id, run);
        let Intended::Recorded(told) = intend(&world, &next, intent("c1", false)).await else {
            panic!("the next attempt is told");
        };
        assert_eq!((told.outcome, told.source), (known, EffectSource::Person));
        assert_eq!(told.note.as_deref(), Some("looked"));
        world.close(&next, Report::Completed, Closer::Holder).await;
    }
    let run = in_review(&world, &acme).await;
    let abandon = resolution(run, ReviewVerdict::Abandon);
    assert_eq!(
        resolve(&world, &acme, abandon.clone()).await,
        Resolved::Done
    );
    assert_eq!(resolve(&world, &acme, abandon).await, Resolved::NotInReview);
    let abandoned = "SELECT count(*) FROM run_ends WHERE state = 'failed' AND code = 'ABANDONED'";
    assert_eq!(world.count(abandoned).await, 1);
    let told = "SELECT count(*) FROM run_events WHERE kind = 'run.resolved'";
    assert_eq!(world.count(told).await, 3);
    let audited =
        "SELECT count(*) FROM audit_log WHERE action = 'run.resolve' AND actor = 'cli:op'";
    assert_eq!(world.count(audited).await, 3);
    // Put back it is in review again: the effect is as unknown as before.
    let scoped = world.store.tenant(&acme);
    let back = scoped
        .reopen(vec![run], "op".to_owned(), DAY_MS, None)
        .await;
    assert_eq!(back.expect("reopen"), [run]);
    let review = "SELECT count(*) FROM run_parked WHERE why = 'review'";
    assert_eq!(world.count(review).await, 1);
    world.audit().await;
}

/// R4.5: of several calls in question each is resolved by itself, and the run goes on once none is left.
#[tokio::test]
async fn calls_in_question_are_resolved_one_by_one() {
    let (acme, world) = (tenant("acme"), World::new(&["acme"]).await);
    let run = world.submit(&acme, RunKind::BusinessTask).await;
    let lease = claim(&world, &acme).await;
    for call in ["c1", "c2"] {
        intend(&world, &lease, intent(call, false)).await;
    }
    assert_eq!(take_over(&world, &lease).await, RunState::Review);
    let about = |call: &str| Resolution {
        call_id: Some(call.parse().expect("call id")),
        ..resolution(run, ReviewVerdict::ConfirmDone)
    };
    for (call, expected) in [
        ("other", Resolved::NoSuchEffect),
        ("c1", Resolved::Left(1)),
        ("c1", Resolved::NoSuchEffect),
        ("c2", Resolved::Done),
    ] {
        assert_eq!(
            resolve(&world, &acme, about(call)).await,
            expected,
            "{call}"
        );
        world.audit().await;
    }
    assert_eq!(claim(&world, &acme).await.run_id, run);
}

/// R4.5, R3.10: two verdicts and a cancel at once: one of them is taken, and the run stands in one place.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn verdicts_and_cancels_race_safely() {
    let (acme, world) = (tenant("acme"), World::new(&["acme"]).await);
    for _ in 0..10 {
        let run = in_review(&world, &acme).await;
        let scoped = world.store.tenant(&acme);
        let (done, abandoned, cancelled) = tokio::join!(
            resolve(&world, &acme, resolution(run, ReviewVerdict::ConfirmDone)),
            resolve(&world, &acme, resolution(run, ReviewVerdict::Abandon)),
            scoped.cancel_runs(vec![run], DAY_MS, None),
        );
        let verdicts = [done, abandoned];
        let taken = verdicts.iter().filter(|v| **v == Resolved::Done).count();
        let cancelled = usize::from(cancelled.expect("cancel").ended == 1);
        // A run that goes on after `done` may be cancelled in the queue.
        let both = done == Resolved::Done && cancelled == 1;
        assert!(taken + cancelled == 1 || both, "{verdicts:?} {cancelled}");
        world.audit().await;
        let rest = scoped.cancel_runs(vec![run], DAY_MS, None).await;
        rest.expect("clean up");
    }
}

/// R3.7, R4.5: a turn in review keeps its conversation busy, waits for no clock, and frees it when it is given up.
#[tokio::test]
async fn a_turn_in_review_keeps_its_conversation() {
    let (acme, world) = (tenant("acme"), World::new(&["acme"]).await);
    let conversation = world.conversation(&acme).await;
    let first = world.submit_turn(&acme, conversation).await;
    let second = world.submit_turn(&acme, conversation).await;
    let claim = || world.claim(&acme, QuotaBucket::Foreground, 5, Some(8), 30_000);
    let lease = claim().await.remove(0);
    intend(&world, &lease, intent("c1", false)).await;
    assert_eq!(take_over(&world, &lease).await, RunState::Review);
    let fleet = world.store.fleet();
    sqlx::query("UPDATE run_parked SET expires_at = clock_timestamp() WHERE why <> 'review'")
        .execute(world.db.pool())
        .await
        .expect("age");
    let late = fleet.expired_in_queue(10).await.expect("expired");
    assert_eq!(
        late.iter().map(|e| e.run_id).collect::<Vec<_>>(),
        [second],
        "a review ends by a person's word only"
    );
    assert!(claim().await.is_empty());
    let abandon = resolution(first, ReviewVerdict::Abandon);
    assert_eq!(resolve(&world, &acme, abandon).await, Resolved::Done);
    assert_eq!(claim().await.remove(0).run_id, second);
    world.audit().await;
}

/// R3.11, O-32: what a lost attempt said it used is charged to the run, and ends it; time counts under a lease only.
#[tokio::test]
async fn the_use_of_lost_attempts_is_charged() {
    let (acme, world) = (tenant("acme"), World::new(&["acme"]).await);
    let mut run = world.new_run(&acme, RunKind::BusinessTask).await;
    (run.budget_tokens, run.budget_ms) = (Some(100), Some(3_600_000));
    let id = run.run_id;
    let scoped = world.store.tenant(&acme);
    scoped.submit_run(run, DAY_MS).await.expect("submit");
    let fleet = world.store.fleet();
    let first = claim(&world, &acme).await;
    let renew = async |lease: &OpenedLease, tokens| {
        let (held, tokens) = ([held(lease)], [tokens]);
        let renewed = fleet.renew_leases("main", &held, &tokens, 30_000);
        renewed.await.expect("renew").remove(0).stop
    };
    for tokens in [60, 10] {
        assert_eq!(renew(&first, tokens).await, None, "less changes nothing");
    }
    // Nobody looked after the lease for two hours: that is not execution time.
    sqlx::query(
        "UPDATE run_leases SET started_at = started_at - interval '3 hours',
             lease_until = clock_timestamp() - interval '2.5 hours'",
    )
    .execute(world.db.pool())
    .await
    .expect("age");
    world
        .close(&first, Report::LeaseLost, Closer::Takeover)
        .await;
    let second = claim(&world, &acme).await;
    assert_eq!(second.spent_tokens, 60);
    assert!((1_800_000..1_900_000).contains(&second.spent_ms));
    assert!(renew(&second, 39).await.is_none());
    assert!(renew(&second, 40).await.is_some(), "told to stop");
    assert_eq!(take_over(&world, &second).await, RunState::Failed);
    let row = scoped.run(id).await.expect("read").expect("run");
    assert_eq!((row.spent_tokens, row.attempts), (100, 2));
    let back = scoped.reopen(vec![id], "op".to_owned(), DAY_MS, None).await;
    assert!(
        back.expect("reopen").is_empty(),
        "what is spent stays spent"
    );
    let code = "SELECT count(*) FROM run_ends WHERE code = 'BUDGET_EXHAUSTED'";
    assert_eq!(world.count(code).await, 1);
    let mut more = report_of(&second, Report::Completed);
    more.tokens = 7;
    let rules = rig::rules();
    let closed = fleet.close_attempts(vec![more], Closer::Holder, &rules);
    assert!(closed.await.expect("late").is_empty());
}
