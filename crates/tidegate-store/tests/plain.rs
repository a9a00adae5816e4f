//! Plain successes are closed in a statement of their own (R4.3, R4.4): it must come to the same as the other way.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

use serde_json::Value;
use tidegate_model::run::{QuotaBucket, RunKind};
use tidegate_policy::retry::{Report, Verdict, plain_success};
use tidegate_store::attempts::{
    close::{Closed, Closer, Step},
    open::OpenedLease,
};

mod rig;

use rig::{World, report_of, rules, tenant};

/// A lease of a run without conversation, parent or children.
async fn lease(world: &World) -> OpenedLease {
    let acme = tenant("acme");
    world.submit(&acme, RunKind::BusinessTask).await;
    world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .remove(0)
}

/// Completes it; a detail keeps the report from being closed as a plain one.
async fn complete(world: &World, lease: &OpenedLease, plain: bool) -> Option<Closed> {
    let mut report = report_of(lease, Report::Completed);
    report.detail = (!plain).then(|| "the long way".to_owned());
    let closed = world
        .store
        .fleet()
        .close_attempts(vec![report], Closer::Holder, &rules())
        .await
        .expect("close");
    closed.into_iter().next()
}

/// What is written about a run, without its id, its times and the detail.
async fn written(world: &World, lease: &OpenedLease) -> Vec<Value> {
    let mut rows = Vec::new();
    for table in ["run_attempts", "run_ends", "run_events"] {
        let sql = format!(
            "SELECT to_jsonb(t) - '{{run_id,detail,queued_at,started_at,ended_at,spent_ms,at}}'::text[]
             FROM {table} t WHERE run_id = $1 ORDER BY to_jsonb(t) ->> 'seq'"
        );
        let found: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(lease.run_id.as_uuid())
            .fetch_all(world.db.pool())
            .await
            .expect("rows");
        assert!(!found.is_empty(), "{table}");
        rows.extend(found);
    }
    rows
}

/// R4.3: the same rows are written either way, and the same is answered.
#[tokio::test]
async fn both_ways_write_the_same() {
    let world = World::new(&["acme"]).await;
    let (one, other) = (lease(&world).await, lease(&world).await);
    let plain = complete(&world, &one, true).await.expect("plain");
    let long = complete(&world, &other, false).await.expect("long");
    assert_eq!(written(&world, &one).await, written(&world, &other).await);
    assert_eq!(plain.verdict, long.verdict);
    assert_eq!(
        (plain.lane, plain.capability, plain.charged, plain.tokens),
        (long.lane, long.capability, long.charged, long.tokens)
    );
    world.audit().await;
}

/// R3.10, R3.11, R4.4: whatever has happened to the lease meanwhile, the verdict is that of the policy.
#[tokio::test]
async fn both_ways_decide_the_same() {
    let world = World::new(&["acme"]).await;
    let states = [
        "used_tokens = 0",
        "must_end_at = clock_timestamp() - interval '1 second'",
        "must_end_at = clock_timestamp() + interval '1 hour'",
        "stop_reason = 'cancel', stop_requested_at = clock_timestamp()",
        "stop_reason = 'deadline', stop_requested_at = clock_timestamp()",
        "stop_reason = 'budget', stop_requested_at = clock_timestamp()",
        "stop_reason = 'parent_ended', stop_requested_at = clock_timestamp()",
        "has_effects = true",
        "in_tree = true",
        "lease_until = clock_timestamp() - interval '1 second'",
        "fence_number = fence_number + 1",
        "fence_generation = fence_generation + 1",
    ];
    let mut succeeded = 0;
    for state in states {
        let mut verdicts: Vec<Option<Verdict>> = Vec::new();
        for plain in [true, false] {
            let lease = lease(&world).await;
            let sql = format!("UPDATE run_leases SET {state} WHERE run_id = $1");
            sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(lease.run_id.as_uuid())
                .execute(world.db.pool())
                .await
                .expect("state");
            verdicts.push(
                complete(&world, &lease, plain)
                    .await
                    .map(|closed| closed.verdict),
            );
        }
        assert_eq!(verdicts[0], verdicts[1], "{state}");
        succeeded += usize::from(verdicts[0] == Some(plain_success()));
    }
    assert_eq!(
        succeeded, 6,
        "plain, budgets that do not matter, effects, trees"
    );
}

/// R4.3: what is plain is closed in the first step, without the others.
#[tokio::test]
async fn the_first_step_closes_what_is_plain() {
    let world = World::new(&["acme"]).await;
    let (plain, stopped) = (lease(&world).await, lease(&world).await);
    sqlx::query("UPDATE run_leases SET stop_reason = 'cancel', stop_requested_at = clock_timestamp() WHERE run_id = $1")
        .bind(stopped.run_id.as_uuid())
        .execute(world.db.pool())
        .await
        .expect("stop");
    let mut closed = Vec::new();
    for step in Step::ALL {
        let reports = [&plain, &stopped].map(|lease| report_of(lease, Report::Completed));
        let fleet = world.store.fleet();
        let ended = fleet
            .close_step(step, reports.into(), Closer::Holder, &rules())
            .await
            .expect("close");
        closed.push(ended.iter().map(|one| one.key.run_id).collect::<Vec<_>>());
    }
    assert_eq!(closed, [vec![plain.run_id], vec![stopped.run_id], vec![]]);
    world.audit().await;
}

/// R4.2, R4.6: an event of the holder that comes while its attempt is being closed is before the end.
#[tokio::test]
async fn an_event_that_comes_in_between_is_kept() {
    let world = World::new(&["acme"]).await;
    let lease = lease(&world).await;
    let mut append = world.db.pool().begin().await.expect("begin");
    for sql in [
        "SELECT FROM run_leases FOR KEY SHARE",
        "INSERT INTO run_events (tenant, run_id, seq, kind, body)
         SELECT tenant, run_id, max(seq) + 1, 'progress', '{}' FROM run_events GROUP BY 1, 2",
    ] {
        sqlx::query(sql).execute(&mut *append).await.expect("event");
    }
    let report = report_of(&lease, Report::Completed);
    let closed = world.close_behind(append, report).await;
    assert_eq!(closed.len(), 1, "the lease was held all the time");
    let kinds: Vec<String> = sqlx::query_scalar("SELECT kind FROM run_events ORDER BY seq")
        .fetch_all(world.db.pool())
        .await
        .expect("events");
    assert_eq!(
        kinds,
        ["run.queued", "run.started", "progress", "run.ended"]
    );
    world.audit().await;
}
