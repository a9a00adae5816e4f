//! What a claim costs does not grow with what is queued, nor with how many tenants queue it. Counted in buffers, which
//! do not depend on how busy the machine is.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod rig;

use rig::{World, tenant};
use sqlx::{AssertSqlSafe, PgConnection};
use tidegate_model::{
    RunId, TenantId,
    run::{QuotaBucket, RunKind},
};
use tidegate_store::attempts::open::{LaneAsk, OpenedLease, Place};
use tidegate_testkit::TestCluster;

/// Buffers of a claim of 100 at most.
const BUFFERS_MAX: i64 = 2_500;
const MULTIPLY: &str = include_str!("../../tidegate-testkit/src/multiply.sql");

/// A world on a server that counts what statements touch.
async fn counting() -> World {
    let cluster = TestCluster::start(|options| {
        options
            .setting("shared_preload_libraries", "pg_stat_statements")
            .setting("shared_buffers", "256MB")
    })
    .await;
    let db = cluster.migrated_db().await;
    sqlx::raw_sql(
        "CREATE EXTENSION pg_stat_statements; INSERT INTO tenants (tenant) VALUES ('model')",
    )
    .execute(db.pool())
    .await
    .expect("an extension of every PostgreSQL");
    World::of(db).await
}

/// Queues `runs` more copies of the model for the tenants `prefix`0 and on.
async fn multiply(
    connection: &mut PgConnection,
    model: RunId,
    prefix: &str,
    tenants: i64,
    runs: i64,
) {
    sqlx::raw_sql(AssertSqlSafe(format!(
        "{MULTIPLY} SELECT pg_temp.multiply('{}', '{prefix}', {tenants}, {runs})",
        model.as_uuid()
    )))
    .execute(&mut *connection)
    .await
    .expect("multiply");
    sqlx::raw_sql("ANALYZE agent_runs, run_queue")
        .execute(connection)
        .await
        .expect("analyze");
}

/// Buffers of one claim of a hundred runs, as many from each of some of the tenants.
async fn buffers(world: &World, prefix: &str, tenants: usize, from: usize) -> i64 {
    let lanes = tenants.min(100);
    let class = world.class(&tenant("model")).await;
    let asks: Vec<LaneAsk> = (0..lanes)
        .map(|lane| LaneAsk {
            bucket: QuotaBucket::Foreground,
            tenant: format!("{prefix}{}", (from + lane * tenants / lanes) % tenants)
                .parse::<TenantId>()
                .expect("tenant"),
            class,
            take: i32::try_from(100 / lanes).expect("small"),
            cap: Some(100),
            cost: 1_000,
            from: Place::FIRST,
        })
        .collect();
    sqlx::raw_sql("SELECT pg_stat_statements_reset()")
        .execute(world.db.pool())
        .await
        .expect("reset");
    let holder = world.holder("w", 30_000);
    let opened = world
        .store
        .fleet()
        .open_foreground(&holder, &asks)
        .await
        .expect("claim");
    assert_eq!(opened.len(), 100);
    world
        .count(
            "SELECT sum(shared_blks_hit + shared_blks_read)::bigint FROM pg_stat_statements
             WHERE query LIKE '%attempt:open%' AND query NOT LIKE '%pg_stat_statements%'",
        )
        .await
}

/// R3.3: a claim of 100 touches at most 2,500 buffers at 10,000 and at 1,000,000 queued runs, of 10 and of 10,000
/// tenants.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_costs_the_same_whatever_is_queued() {
    let world = counting().await;
    let model = world.submit(&tenant("model"), RunKind::BusinessTask).await;
    // The account that is counted: a business task is not.
    sqlx::raw_sql("UPDATE run_queue SET bucket = 0")
        .execute(world.db.pool())
        .await
        .expect("foreground");
    let mut connection = world.db.pool().acquire().await.expect("connection");
    let mut queued = 0;
    for (more, label) in [(10_000, "10,000 queued"), (490_000, "1,000,000 queued")] {
        queued += more;
        for (prefix, tenants) in [("few-", 10), ("many-", 10_000)] {
            multiply(&mut connection, model, prefix, tenants, more).await;
        }
        for (prefix, tenants) in [("few-", 10), ("many-", 10_000)] {
            // The first one pays for what was just written: it sets hint bits and fills caches.
            buffers(&world, prefix, tenants, 1).await;
            let found = buffers(&world, prefix, tenants, 2).await;
            println!("{label} ({queued} each), {tenants} tenants: {found} buffers");
            assert!(found > 0, "nothing was counted");
            assert!(
                found <= BUFFERS_MAX,
                "{label}, {tenants} tenants: {found} buffers"
            );
        }
    }
}

/// Buffers of a claim that asks a tenant at its cap and another one.
async fn beside_a_full_one(world: &World) -> i64 {
    let class = world.class(&tenant("model")).await;
    let ask = |name: &str, cap| LaneAsk {
        bucket: QuotaBucket::Foreground,
        tenant: tenant(name),
        class,
        take: 2,
        cap: Some(cap),
        cost: 1_000,
        from: Place::FIRST,
    };
    sqlx::raw_sql("SELECT pg_stat_statements_reset()")
        .execute(world.db.pool())
        .await
        .expect("reset");
    let holder = world.holder("w", 30_000);
    let asks = [ask("full-0", 2), ask("other-0", 100)];
    let fleet = world.store.fleet();
    let opened = fleet.open_foreground(&holder, &asks).await.expect("claim");
    let full = |lease: &OpenedLease| lease.tenant.as_str() == "full-0";
    assert!(opened.len() == 2 && !opened.iter().any(full), "at its cap");
    world
        .count(
            "SELECT sum(shared_blks_hit + shared_blks_read)::bigint FROM pg_stat_statements
             WHERE query LIKE '%attempt:open%' AND query NOT LIKE '%pg_stat_statements%'",
        )
        .await
}

/// O-03: what a claim costs beside a tenant at its cap does not grow with that tenant's backlog, from 1,000 to 100,000
/// runs by a fifth at most.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_tenant_costs_the_same_whatever_it_has_queued_o_03() {
    let world = counting().await;
    let model = world.submit(&tenant("model"), RunKind::BusinessTask).await;
    sqlx::raw_sql("UPDATE run_queue SET bucket = 0")
        .execute(world.db.pool())
        .await
        .expect("foreground");
    let mut connection = world.db.pool().acquire().await.expect("connection");
    multiply(&mut connection, model, "other-", 1, 40).await;
    let mut costs = Vec::new();
    for more in [1_000, 99_000] {
        multiply(&mut connection, model, "full-", 1, more).await;
        if costs.is_empty() {
            let full = LaneAsk {
                bucket: QuotaBucket::Foreground,
                tenant: tenant("full-0"),
                class: world.class(&tenant("model")).await,
                take: 2,
                cap: Some(2),
                cost: 1_000,
                from: Place::FIRST,
            };
            let holder = world.holder("w", 30_000);
            let fleet = world.store.fleet();
            let opened = fleet.open_foreground(&holder, &[full]).await;
            assert_eq!(opened.expect("claim").len(), 2);
        }
        // The first one pays for what was just written, and the first one on a connection for learning the tables: the
        // least of some is what a claim costs.
        let mut least = i64::MAX;
        for _ in 0..6 {
            least = least.min(beside_a_full_one(&world).await);
        }
        costs.push(least);
    }
    println!("1,000 and 100,000 queued: {costs:?} buffers");
    assert!(costs[0] > 0, "nothing was counted");
    assert!(costs[1] * 5 <= costs[0] * 6 + 5, "{costs:?} buffers");
}
