//! What reading the lanes costs: probes per lane, whatever the backlog; and who stands before whom in one.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod rig;

use std::collections::HashMap;

use rig::{DAY_MS, World, tenant};
use sqlx::postgres::PgPoolOptions;
use tidegate_model::{
    Code, TenantId,
    run::{QuotaBucket, RunKind},
};
use tidegate_policy::{
    fairness::{PassChange, stored_pass},
    retry::Report,
};
use tidegate_store::{Store, attempts::close::Closer};

/// Rows of `run_queue` that the session's statements have touched so far.
async fn touched(store: &Store) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()")
        .execute(store.pool())
        .await
        .expect("flush");
    sqlx::query_scalar(
        "SELECT seq_tup_read + (SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes
             WHERE relname = 'run_queue') FROM pg_stat_user_tables WHERE relname = 'run_queue'",
    )
    .fetch_one(store.pool())
    .await
    .expect("statistics")
}

/// Fills lanes of uncounted runs: `lanes` tenants with `each` runs.
async fn fill(world: &World, lanes: i32, each: i32) {
    sqlx::query("INSERT INTO tenants (tenant) SELECT 't' || n FROM generate_series(1, $1) n")
        .bind(lanes)
        .execute(world.db.pool())
        .await
        .expect("tenants");
    sqlx::query(
        "INSERT INTO requirement_classes (tenant, digest, capability, requirements)
         SELECT 't' || n, decode(repeat('00', 32), 'hex'), 'chat', '{}' FROM generate_series(1, $1) n",
    )
    .bind(lanes)
    .execute(world.db.pool())
    .await
    .expect("classes");
    sqlx::query(
        "WITH runs AS (
            SELECT c.tenant, c.class, gen_random_uuid() AS run_id
            FROM requirement_classes c CROSS JOIN generate_series(1, $1)
        ), cold AS (
            INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority,
                priority_source, root_run_id, request_digest, max_attempts, backoff_base_ms, backoff_max_ms, input)
            SELECT tenant, run_id, 'main', 'business_task', 'chat', class, 'standard', 0, 'default', run_id,
                decode(repeat('00', 32), 'hex'), 5, 1, 1, '{}' FROM runs
        )
        INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, next_seq, expires_at)
        SELECT 'main', 2, tenant, class, 1, 0, run_id, 2, clock_timestamp() + interval '1 day' FROM runs",
    )
    .bind(each)
    .execute(world.db.pool())
    .await
    .expect("runs");
}

/// R3.8: the view of the lanes touches a bounded number of rows per lane; the backlog behind them costs nothing. With
/// and without statistics of the planner.
#[tokio::test]
async fn lane_views_do_not_walk_the_backlog() {
    const LANES: i32 = 20;
    const EACH: i32 = 3_000;
    let world = World::new(&[]).await;
    fill(&world, LANES, EACH).await;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect(&world.db.url())
        .await
        .expect("one session");
    let store = Store::new(pool);
    for analyzed in [false, true] {
        if analyzed {
            sqlx::raw_sql("ANALYZE")
                .execute(store.pool())
                .await
                .expect("analyze");
        }
        let before = touched(&store).await;
        let views = store
            .fleet()
            .lane_views("main", None, 500, 0)
            .await
            .expect("views")
            .lanes;
        let after = touched(&store).await;
        let lanes = usize::try_from(LANES).expect("lanes");
        assert_eq!(views.len(), lanes);
        assert!(
            views.iter().all(|view| view.queued.is_none()),
            "3,000 are endless"
        );
        // One probe to find it, one for its head, sixteen counted.
        let per_lane = (after - before) / i64::from(LANES);
        assert!(
            (16..=26).contains(&per_lane),
            "{per_lane} rows per lane, analyzed: {analyzed}"
        );

        let before = touched(&store).await;
        let states = store.fleet().lane_states("main").await.expect("states");
        let after = touched(&store).await;
        assert_eq!(states.len(), lanes);
        let per_lane = (after - before) / i64::from(LANES);
        assert!(
            per_lane <= 2,
            "{per_lane} rows per lane, analyzed: {analyzed}"
        );
    }
}

/// R3.5: running counts are per tenant and bucket over all classes, and a lane goes with its last run.
#[tokio::test]
async fn views_follow_claims() {
    let acme = tenant("acme");
    let world = World::new(&["acme"]).await;
    let fleet = world.store.fleet();
    for _ in 0..3 {
        world.submit(&acme, RunKind::BusinessTask).await;
    }
    let look = async |upcoming| {
        let chunk = fleet
            .lane_views("main", None, 500, upcoming)
            .await
            .expect("views");
        assert_eq!(chunk.next, None);
        chunk.lanes
    };
    let views = look(10).await;
    assert_eq!(views.len(), 1);
    assert_eq!((views[0].queued, views[0].running), (Some(3), 0));
    assert_eq!(views[0].next_created_at.len(), 2);
    world
        .claim(&acme, QuotaBucket::Uncounted, 2, None, 30_000)
        .await;
    let views = look(0).await;
    assert_eq!((views[0].queued, views[0].running), (Some(1), 2));
    world
        .claim(&acme, QuotaBucket::Uncounted, 2, None, 30_000)
        .await;
    assert!(look(0).await.is_empty());
}

/// R3.8: the lanes are read in chunks; together these are all lanes, each once, and a suspended tenant's are left out
/// without ending the walk.
#[tokio::test]
async fn chunks_make_the_whole() {
    let world = World::new(&[]).await;
    fill(&world, 7, 2).await;
    sqlx::query("UPDATE tenants SET state = 'suspended' WHERE tenant IN ('t3', 't4')")
        .execute(world.db.pool())
        .await
        .expect("suspend");
    let fleet = world.store.fleet();
    let (mut after, mut seen, mut rounds) = (None, Vec::new(), 0);
    loop {
        let chunk = fleet
            .lane_views("main", after.as_ref(), 2, 0)
            .await
            .expect("views");
        seen.extend(chunk.lanes.iter().map(|lane| lane.tenant.to_string()));
        rounds += 1;
        after = chunk.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["t1", "t2", "t5", "t6", "t7"]);
    assert_eq!(rounds, 4);
}

/// R3.12: charges of several instances add up as the policy says, a tenant that was away starts where it came up, and the
/// floor never falls.
#[tokio::test]
async fn stored_passes_add_up() {
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let world = World::new(&["acme", "globex"]).await;
    let fleet = world.store.fleet();
    let mut expected: HashMap<TenantId, u64> = HashMap::new();
    let largest = i64::MAX.unsigned_abs();
    for (floor, changes) in [
        (10, vec![(&acme, 5, 10), (&globex, 7, 10)]),
        // What the floor is now does not matter to one who was there before.
        (300, vec![(&acme, -2, 10)]),
        // Away for long, and back.
        (100, vec![(&globex, 1, 100)]),
        // No sum overflows, and none falls below zero.
        (0, vec![(&acme, i64::MAX, 0), (&globex, i64::MIN, 0)]),
        (0, vec![(&acme, -1, 0), (&globex, 1, largest)]),
    ] {
        let changes: Vec<PassChange> = changes
            .into_iter()
            .map(|(tenant, change, from)| PassChange {
                tenant: tenant.clone(),
                change,
                from,
            })
            .collect();
        let stored = fleet
            .add_passes("main", floor, &changes)
            .await
            .expect("add");
        assert_eq!(stored.floor, if floor == 10 { 10 } else { 300 });
        assert_eq!(fleet.pass_floor("main").await.expect("floor"), stored.floor);
        for change in &changes {
            let before = expected.get(&change.tenant).copied();
            expected.insert(change.tenant.clone(), stored_pass(before, change));
        }
        for (tenant, pass) in stored.passes {
            assert_eq!(expected[&tenant], pass, "{changes:?}");
        }
    }
    assert_eq!(expected[&acme], largest - 1);
}

/// R3.11: a run that loses its lease again backs off and then stands before what was submitted since, as after its first
/// loss; one that its worker failed stands behind it.
#[tokio::test]
async fn a_lost_lease_comes_back_to_the_head_after_its_backoff() {
    let acme = tenant("acme");
    let failed = Report::Failed {
        code: Code::WorkerFailed,
        retryable: true,
        retry_after_ms: 0,
    };
    for (report, closer, first_again) in [
        (Report::LeaseLost, Closer::Takeover, true),
        (failed, Closer::Holder, false),
    ] {
        let world = World::new(&["acme"]).await;
        let oldest = world.submit(&acme, RunKind::BusinessTask).await;
        let claim = || world.claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000);
        let lost = claim().await.remove(0);
        world.expire_leases().await;
        world
            .close(&lost, Report::LeaseLost, Closer::Takeover)
            .await;
        let again = claim().await.remove(0);
        assert_eq!(again.run_id, oldest);
        if closer == Closer::Takeover {
            world.expire_leases().await;
        }
        world.close(&again, report, closer).await;
        let newer = world.submit(&acme, RunKind::BusinessTask).await;
        world.db_due().await;
        let woken = world.store.fleet().wake_due("main", DAY_MS, 10).await;
        assert_eq!(woken.expect("wake"), 1);
        let next = claim().await.remove(0).run_id;
        assert_eq!(next, if first_again { oldest } else { newer }, "{report:?}");
        world.audit().await;
    }
}

/// R3.1, R3.8: what a sweep reads does not grow with the queue but where it looks for late runs, which it does apart.
#[tokio::test]
async fn a_sweep_reads_the_queue_only_for_late_runs() {
    let world = World::new(&[]).await;
    fill(&world, 10, 100).await;
    sqlx::query("UPDATE run_queue SET expires_at = clock_timestamp() WHERE position = (SELECT max(position) FROM run_queue)")
        .execute(world.db.pool())
        .await
        .expect("a late run");
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect_with(world.db.pool().connect_options().as_ref().clone());
    let one = Store::new(pool.await.expect("a session"));
    for (in_queue, late, reads) in [(false, false, 0..=10), (true, true, 500..=2_000)] {
        let before = touched(&one).await;
        let found = one.fleet().to_sweep("main", in_queue).await.expect("look");
        assert_eq!((found.late, found.queued), (late, true));
        let read = touched(&one).await - before;
        assert!(reads.contains(&read), "{read} rows");
    }
}
