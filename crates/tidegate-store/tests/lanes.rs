//! What reading the lanes costs: probes per lane, whatever the backlog.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod rig;

use rig::{World, tenant};
use sqlx::postgres::PgPoolOptions;
use tidegate_model::run::{QuotaBucket, RunKind};
use tidegate_store::Store;

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
            .lane_views("main", None, 0)
            .await
            .expect("views");
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
    let views = fleet.lane_views("main", None, 10).await.expect("views");
    assert_eq!(views.len(), 1);
    assert_eq!((views[0].queued, views[0].running), (Some(3), 0));
    assert_eq!(views[0].next_created_at.len(), 2);
    world
        .claim(&acme, QuotaBucket::Uncounted, 2, None, 30_000)
        .await;
    let views = fleet.lane_views("main", None, 0).await.expect("views");
    assert_eq!((views[0].queued, views[0].running), (Some(1), 2));
    let other = ["other".parse().expect("capability")];
    let none = fleet
        .lane_views("main", Some(&other), 0)
        .await
        .expect("views");
    assert!(none.is_empty(), "another pool's lanes");
    world
        .claim(&acme, QuotaBucket::Uncounted, 2, None, 30_000)
        .await;
    assert!(
        fleet
            .lane_views("main", None, 0)
            .await
            .expect("views")
            .is_empty()
    );
}
