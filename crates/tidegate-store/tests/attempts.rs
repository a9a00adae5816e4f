//! Attempts against a real PostgreSQL: what goes in comes out exactly once.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod rig;

use rig::{DAY_MS, World, held, report_of, tenant};
use serde_json::json;
use tidegate_model::{
    Code, RunId,
    event::EventKind,
    run::{QuotaBucket, RunKind, RunState},
};
use tidegate_policy::retry::{Disposition, Report};
use tidegate_store::{
    attempts::{close::Closer, open::OpenedLease},
    events::Appended,
    runs::{Place, Submitted},
};

const FAILED: Report = Report::Failed {
    code: Code::WorkerFailed,
    retryable: true,
    retry_after_ms: 0,
};

/// R3.1, R4.1: a run is claimed once, completed once, and a second completion changes nothing (R4.2).
#[tokio::test]
async fn a_run_is_claimed_and_completed_once() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    let run = world.submit(&acme, RunKind::BusinessTask).await;
    let leases = world
        .claim(&acme, QuotaBucket::Uncounted, 5, None, 30_000)
        .await;
    assert_eq!(leases.iter().map(|l| l.run_id).collect::<Vec<_>>(), [run]);
    assert!(
        world
            .claim(&acme, QuotaBucket::Uncounted, 5, None, 30_000)
            .await
            .is_empty()
    );
    let closed = world
        .close(&leases[0], Report::Completed, Closer::Holder)
        .await;
    assert_eq!(closed[0].state(), RunState::Succeeded);
    assert!(
        world
            .close(&leases[0], Report::Completed, Closer::Holder)
            .await
            .is_empty()
    );
    assert_eq!(world.count("SELECT count(*) FROM run_ends").await, 1);
    world.audit().await;
}

/// O-01: the recovery pass checks again what it saw: a run that finished or was claimed again in between is left alone.
#[tokio::test]
async fn a_takeover_changes_only_what_is_still_lost() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    for _ in 0..3 {
        world.submit(&acme, RunKind::BusinessTask).await;
    }
    let leases = world
        .claim(&acme, QuotaBucket::Uncounted, 3, None, 30_000)
        .await;
    world.expire_leases().await;
    let candidates = world
        .store
        .fleet()
        .expired_leases("main", 10)
        .await
        .expect("candidates");
    assert_eq!(candidates.len(), 3);
    // Run 1 finishes after all; run 2 is taken over by somebody else and claimed again.
    sqlx::query("UPDATE run_leases SET lease_until = clock_timestamp() + interval '1 minute' WHERE run_id = $1")
        .bind(leases[0].run_id.as_uuid())
        .execute(world.db.pool())
        .await
        .expect("renew");
    world
        .close(&leases[0], Report::Completed, Closer::Holder)
        .await;
    world
        .close(&leases[1], Report::LeaseLost, Closer::Takeover)
        .await;
    let again = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await;
    assert_eq!(again[0].run_id, leases[1].run_id);

    let reports: Vec<_> = leases
        .iter()
        .map(|lease| report_of(lease, Report::LeaseLost))
        .collect();
    let closed = world
        .store
        .fleet()
        .close_attempts(reports, Closer::Takeover, &rig::rules())
        .await
        .expect("takeover");
    assert_eq!(
        closed.iter().map(|c| c.key.run_id).collect::<Vec<_>>(),
        [leases[2].run_id]
    );
    assert!(again[0].fence > leases[1].fence);
    assert_eq!(world.count("SELECT count(*) FROM run_leases").await, 1);
    assert_eq!(
        world
            .count("SELECT count(*) FROM run_ends WHERE state = 'succeeded'")
            .await,
        1
    );
    world.audit().await;
}

/// R4.2: after a takeover nothing of the late holder is accepted.
#[tokio::test]
async fn a_late_holder_writes_nothing() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    world.submit(&acme, RunKind::BusinessTask).await;
    let late = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .remove(0);
    let fleet = world.store.fleet();
    let event = [(EventKind::WorkerNote, json!({}))];
    world.expire_leases().await;
    // Already before anybody has taken over.
    assert!(
        fleet
            .renew_leases("main", &[held(&late)], &[0], 30_000)
            .await
            .expect("renew")
            .is_empty()
    );
    let appended = fleet
        .append_events("main", &held(&late), late.next_seq, &event)
        .await
        .expect("append");
    assert_eq!(appended, Appended::LeaseLost);
    assert!(
        world
            .close(&late, Report::Completed, Closer::Holder)
            .await
            .is_empty()
    );
    world
        .close(&late, Report::LeaseLost, Closer::Takeover)
        .await;
    let current = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .remove(0);
    for report in [Report::Completed, FAILED, Report::Released] {
        assert!(world.close(&late, report, Closer::Holder).await.is_empty());
    }
    let appended = fleet
        .append_events("main", &held(&late), current.next_seq, &event)
        .await
        .expect("append");
    assert_eq!(appended, Appended::LeaseLost);
    assert_eq!(
        world
            .close(&current, Report::Completed, Closer::Holder)
            .await
            .len(),
        1
    );
    world.audit().await;
}

/// R4.7: a fence of a lost history is refused, and its lease is taken over at once.
#[tokio::test]
async fn a_fence_of_an_older_generation_is_refused() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    world.submit(&acme, RunKind::BusinessTask).await;
    let old = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .remove(0);
    sqlx::query("UPDATE cluster SET generation = generation + 1")
        .execute(world.db.pool())
        .await
        .expect("raise");
    assert!(
        world
            .close(&old, Report::Completed, Closer::Holder)
            .await
            .is_empty()
    );
    let lost = world
        .store
        .fleet()
        .expired_leases("main", 10)
        .await
        .expect("candidates");
    assert_eq!(lost, [held(&old)]);
    assert_eq!(
        world
            .close(&old, Report::LeaseLost, Closer::Takeover)
            .await
            .len(),
        1
    );
    let new = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .remove(0);
    assert!(new.fence > old.fence && new.fence.generation == old.fence.generation + 1);
    world.audit().await;
}

/// O-06: every way an attempt can end gives its slot back exactly once.
#[tokio::test]
async fn each_end_of_a_background_run_frees_its_slot_once() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    let holder_ends = [Report::Completed, FAILED, Report::Released];
    for report in holder_ends.into_iter().chain([Report::LeaseLost]) {
        world.submit(&acme, RunKind::BackgroundWork).await;
        let lease = world
            .claim(&acme, QuotaBucket::Background, 5, Some(1), 30_000)
            .await
            .remove(0);
        assert_eq!(
            world.count("SELECT count(*) FROM background_slots").await,
            1,
            "{report:?}"
        );
        let closer = if report == Report::LeaseLost {
            world.expire_leases().await;
            Closer::Takeover
        } else {
            Closer::Holder
        };
        assert_eq!(
            world.close(&lease, report, closer).await.len(),
            1,
            "{report:?}"
        );
        assert!(
            world.close(&lease, report, closer).await.is_empty(),
            "{report:?} twice"
        );
        assert_eq!(
            world.count("SELECT count(*) FROM background_slots").await,
            0,
            "{report:?}"
        );
        world.audit().await;
        sqlx::query("TRUNCATE run_queue, run_parked")
            .execute(world.db.pool())
            .await
            .expect("truncate");
        sqlx::query("DELETE FROM agent_runs a WHERE NOT EXISTS (SELECT FROM run_ends e WHERE e.run_id = a.run_id)")
            .execute(world.db.pool())
            .await
            .expect("delete");
    }
}

/// O-06: cancelled while queued, and cancelled between claim and start (R3.10).
#[tokio::test]
async fn a_cancelled_background_run_frees_its_slot_once() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    let queued = world.submit(&acme, RunKind::BackgroundWork).await;
    let scoped = world.store.tenant(&acme);
    let cancel = async |run: RunId| {
        let cancelled = scoped.cancel_runs(vec![run], DAY_MS, None).await;
        let cancelled = cancelled.expect("cancel");
        (cancelled.ended, cancelled.requested)
    };
    assert_eq!(cancel(queued).await, (1, 0));
    assert_eq!(cancel(queued).await, (0, 0));
    let running = world.submit(&acme, RunKind::BackgroundWork).await;
    let lease = world
        .claim(&acme, QuotaBucket::Background, 5, Some(1), 30_000)
        .await
        .remove(0);
    assert_eq!(cancel(running).await, (0, 1));
    assert_eq!(cancel(running).await, (0, 0), "told once");
    let closed = world.close(&lease, Report::Completed, Closer::Holder).await;
    assert_eq!(
        closed[0].state(),
        RunState::Cancelled,
        "a cancelled run stays cancelled"
    );
    assert_eq!(
        world.count("SELECT count(*) FROM background_slots").await,
        0
    );
    world.audit().await;
}

/// R3.4: the database itself refuses one background lease too many.
#[tokio::test]
async fn a_background_slot_is_unique() {
    let world = World::new(&["acme"]).await;
    let insert = "INSERT INTO background_slots (scope, tenant, slot, run_id) VALUES ('main', 'acme', 1, gen_random_uuid())";
    sqlx::query(insert)
        .execute(world.db.pool())
        .await
        .expect("first");
    let refused = sqlx::query(insert)
        .execute(world.db.pool())
        .await
        .expect_err("second");
    assert!(refused.to_string().contains("background_slots_pkey"));
}

/// R3.2: the bucket is derived at insert and the database refuses to change it.
#[tokio::test]
async fn the_bucket_of_a_run_cannot_be_changed() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    world.submit(&acme, RunKind::BackgroundWork).await;
    for sql in [
        "UPDATE agent_runs SET quota_bucket = 'uncounted'",
        "UPDATE agent_runs SET kind = 'business_task'",
        "UPDATE agent_runs SET priority = 5",
    ] {
        assert!(
            sqlx::query(sql).execute(world.db.pool()).await.is_err(),
            "{sql}"
        );
    }
    assert_eq!(
        world
            .count("SELECT count(*) FROM agent_runs WHERE quota_bucket = 'background'")
            .await,
        1
    );
}

/// R3.3: alone in the statement the cap is exact; room is counted from open leases.
#[tokio::test]
async fn a_foreground_claim_takes_no_more_than_its_room() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    for _ in 0..6 {
        let conversation = world.conversation(&acme).await;
        world.submit_turn(&acme, conversation).await;
    }
    let first = world
        .claim(&acme, QuotaBucket::Foreground, 10, Some(2), 30_000)
        .await;
    assert_eq!(first.len(), 2);
    assert!(
        world
            .claim(&acme, QuotaBucket::Foreground, 10, Some(2), 30_000)
            .await
            .is_empty()
    );
    world
        .close(&first[0], Report::Completed, Closer::Holder)
        .await;
    assert_eq!(
        world
            .claim(&acme, QuotaBucket::Foreground, 10, Some(2), 30_000)
            .await
            .len(),
        1
    );
    // A lowered cap takes nothing away and gives nothing.
    assert!(
        world
            .claim(&acme, QuotaBucket::Foreground, 10, Some(1), 30_000)
            .await
            .is_empty()
    );
    world.audit().await;
}

/// R3.7: turns of one conversation run one at a time, in order, whatever ends the one before.
#[tokio::test]
async fn turns_of_a_conversation_run_one_at_a_time() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    let conversation = world.conversation(&acme).await;
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.push(world.submit_turn(&acme, conversation).await);
    }
    // The first fails and backs off: the conversation stays busy.
    let first = claim_turn(&world, turns[0]).await;
    world.close(&first, FAILED, Closer::Holder).await;
    let idle = world.claim(&acme, QuotaBucket::Foreground, 10, Some(8), 30_000);
    assert!(idle.await.is_empty());
    world.db_due().await;
    let woken = world.store.fleet().wake_due("main", DAY_MS, 10).await;
    assert_eq!(woken.expect("wake"), 1);
    let first = claim_turn(&world, turns[0]).await;
    // The third is cancelled while it waits; the second follows the first, the fourth the second.
    let third = vec![turns[2]];
    let scoped = world.store.tenant(&acme);
    let cancelled = scoped.cancel_runs(third, DAY_MS, None).await;
    assert_eq!(cancelled.expect("cancel").ended, 1);
    world.close(&first, Report::Completed, Closer::Holder).await;
    for turn in [turns[1], turns[3]] {
        let lease = claim_turn(&world, turn).await;
        world.close(&lease, Report::Completed, Closer::Holder).await;
    }
    let active = "SELECT count(*) FROM conversations WHERE active_run IS NOT NULL";
    assert_eq!(world.count(active).await, 0);
    world.audit().await;
}

/// Claims what there is of acme, which must be this one turn.
async fn claim_turn(world: &World, turn: RunId) -> OpenedLease {
    let acme = tenant("acme");
    let mut leases = world
        .claim(&acme, QuotaBucket::Foreground, 10, Some(8), 30_000)
        .await;
    assert_eq!(leases.iter().map(|l| l.run_id).collect::<Vec<_>>(), [turn]);
    leases.remove(0)
}

/// R3.11, O-32: attempts count when the lease is granted; after the bound the run is a dead letter; a hand-back is free.
#[tokio::test]
async fn attempts_are_bounded_however_they_end() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    world.submit(&acme, RunKind::BusinessTask).await;
    let claim = || world.claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000);
    let released = claim().await.remove(0);
    world
        .close(&released, Report::Released, Closer::Holder)
        .await;
    for attempt in 1..=3 {
        world.db_due().await;
        world
            .store
            .fleet()
            .wake_due("main", DAY_MS, 10)
            .await
            .expect("wake");
        let lease = claim().await.remove(0);
        assert_eq!(lease.attempt, attempt);
        world.expire_leases().await;
        let closed = world
            .close(&lease, Report::LeaseLost, Closer::Takeover)
            .await;
        match attempt {
            1 => assert_eq!(closed[0].verdict.next, Disposition::QueueAtHead),
            2 => assert!(matches!(
                closed[0].verdict.next,
                Disposition::BackOff { .. }
            )),
            _ => assert_eq!(
                closed[0].verdict.next,
                Disposition::End {
                    state: RunState::Failed,
                    code: Some(Code::AttemptsExhausted)
                }
            ),
        }
    }
    assert!(claim().await.is_empty());
    // The dead letter comes back with all its attempts, through the same claim.
    let run = released.run_id;
    let reopened = world
        .store
        .tenant(&acme)
        .reopen(vec![run], "op".to_owned(), DAY_MS, None)
        .await
        .expect("reopen");
    assert_eq!(reopened, [run]);
    let lease = claim().await.remove(0);
    assert_eq!(lease.attempt, 1);
    assert!(lease.fence > released.fence, "fences rise over a requeue");
    world.close(&lease, Report::Completed, Closer::Holder).await;
    world.audit().await;
}

/// R3.1, O-33: fifty submissions with one key at once make one run, and everybody is told of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_key_makes_one_run() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    let template = world.new_run(&acme, RunKind::BusinessTask).await;
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let mut run = template.clone();
            run.run_id = RunId::new();
            run.idempotency_key = Some("key-1".to_owned());
            let scoped = world.store.tenant(&acme);
            tokio::spawn(async move {
                (
                    run.run_id,
                    scoped.submit_run(run, DAY_MS).await.expect("submit"),
                )
            })
        })
        .collect();
    let mut ids = std::collections::HashSet::new();
    for task in tasks {
        match task.await.expect("task") {
            (id, Submitted::Accepted { .. }) | (_, Submitted::Repeated(id)) => {
                ids.insert(id);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(world.count("SELECT count(*) FROM agent_runs").await, 1);
    let mut other = template.clone();
    other.run_id = RunId::new();
    other.idempotency_key = Some("key-1".to_owned());
    other.request_digest = [8; 32];
    assert_eq!(
        world
            .store
            .tenant(&acme)
            .submit_run(other, DAY_MS)
            .await
            .expect("submit"),
        Submitted::Conflict
    );
    world.audit().await;
}

/// O-33: a key whose first user rolls back is waited for; the second submission makes the run.
#[tokio::test]
async fn a_key_that_is_rolled_back_is_free() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    let mut run = world.new_run(&acme, RunKind::BusinessTask).await;
    run.idempotency_key = Some("key-1".to_owned());
    let mut open = world.db.pool().begin().await.expect("begin");
    sqlx::query(
        "INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority, priority_source,
             root_run_id, idempotency_key, request_digest, max_attempts, backoff_base_ms, backoff_max_ms, input)
         VALUES ('acme', $1, 'main', 'business_task', 'chat', 1, 'standard', 0, 'default', $1, 'key-1', $2, 1, 0, 0, 'null')",
    )
    .bind(RunId::new().as_uuid())
    .bind([7_u8; 32].as_slice())
    .execute(&mut *open)
    .await
    .expect("insert");
    let scoped = world.store.tenant(&acme);
    let second = tokio::spawn(async move { scoped.submit_run(run, DAY_MS).await });
    world.until_somebody_waits().await;
    open.rollback().await.expect("rollback");
    let submitted = second.await.expect("task").expect("submit");
    let Submitted::Accepted { place, .. } = submitted else {
        panic!("{submitted:?}");
    };
    assert_eq!(place, Place::Queued);
    assert_eq!(world.count("SELECT count(*) FROM agent_runs").await, 1);
    world.audit().await;
}

/// O-06: of two reports about one lease in a batch the first one counts; one under another fence counts for nothing, even
/// before it.
#[tokio::test]
async fn a_batch_closes_each_lease_once() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    for _ in 0..2 {
        world.submit(&acme, RunKind::BusinessTask).await;
    }
    let leases = world
        .claim(&acme, QuotaBucket::Uncounted, 2, None, 30_000)
        .await;
    let completed = |lease| report_of(lease, Report::Completed);
    let mut stale = completed(&leases[0]);
    stale.lease.fence.number -= 1;
    let reports = vec![
        stale,
        completed(&leases[0]),
        completed(&leases[1]),
        completed(&leases[0]),
    ];
    let closed = world
        .store
        .fleet()
        .close_attempts(reports, Closer::Holder, &rig::rules())
        .await
        .expect("close");
    let mut runs: Vec<_> = closed
        .iter()
        .map(|run| (run.key.run_id, run.fence))
        .collect();
    let mut expected: Vec<_> = leases
        .iter()
        .map(|lease| (lease.run_id, lease.fence))
        .collect();
    runs.sort_unstable();
    expected.sort_unstable();
    assert_eq!(runs, expected);
    assert_eq!(world.count("SELECT count(*) FROM run_attempts").await, 2);
    world.audit().await;
}

/// R2.6: a suspended tenant starts nothing new, neither by submission nor by claim.
#[tokio::test]
async fn a_suspended_tenant_starts_nothing() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    world.submit(&acme, RunKind::BusinessTask).await;
    sqlx::query("UPDATE tenants SET state = 'suspended'")
        .execute(world.db.pool())
        .await
        .expect("suspend");
    assert!(
        world
            .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
            .await
            .is_empty()
    );
    let run = world.new_run(&acme, RunKind::BusinessTask).await;
    assert_eq!(
        world
            .store
            .tenant(&acme)
            .submit_run(run, DAY_MS)
            .await
            .expect("submit"),
        Submitted::TenantInactive
    );
    sqlx::query("UPDATE tenants SET state = 'active'")
        .execute(world.db.pool())
        .await
        .expect("resume");
    assert_eq!(
        world
            .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
            .await
            .len(),
        1
    );
}

/// R4.6: the holder numbers; a double is written once, a gap is refused.
#[tokio::test]
async fn events_have_no_gap_and_no_double() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    world.submit(&acme, RunKind::BusinessTask).await;
    let lease = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .remove(0);
    let note = |n: i64| (EventKind::WorkerNote, json!({"n": n}));
    let append = async |first: i64, events: Vec<(EventKind, serde_json::Value)>| {
        world
            .store
            .fleet()
            .append_events("main", &held(&lease), first, &events)
            .await
            .expect("append")
    };
    assert_eq!(
        append(lease.next_seq, vec![note(1), note(2)]).await,
        Appended::Written
    );
    assert_eq!(
        append(lease.next_seq, vec![note(1), note(2)]).await,
        Appended::Written
    );
    assert_eq!(
        append(lease.next_seq + 1, vec![note(2), note(3)]).await,
        Appended::Written
    );
    assert_eq!(
        append(lease.next_seq + 9, vec![note(9)]).await,
        Appended::Gap {
            next: lease.next_seq + 3
        }
    );
    assert_eq!(
        append(lease.next_seq, vec![note(7)]).await,
        Appended::Differs {
            seq: lease.next_seq
        },
        "another content under the same number"
    );
    world.close(&lease, Report::Completed, Closer::Holder).await;
    world.audit().await;
}
