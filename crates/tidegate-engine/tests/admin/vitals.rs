//! R21.1: what stops vacuum is told while it lasts, and not after.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tidegate_engine::{Engine, vitals};
use tidegate_policy::vitals::{Alarm, Bounds};
use tidegate_store::vitals::HOT_TABLES;
use tokio::time::Instant;

use crate::rig::World;

/// Looks until the alarms are as they should be.
async fn until(engine: &Engine, bounds: Bounds, what: &str, holds: impl Fn(&[Alarm]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let alarms = vitals::look(engine, bounds).await.unwrap();
        if holds(&alarms) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {alarms:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// R21.1: a session that holds a snapshot is named with what ends it, and forgotten when it is over.
#[tokio::test]
async fn a_held_snapshot_is_told_while_it_is_held() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let mut session = PgConnection::connect(&world.db.url()).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut session)
        .await
        .unwrap();
    let ends = format!("pg_terminate_backend({pid})");
    let told = |alarms: &[Alarm]| alarms.iter().any(|alarm| alarm.remedy.contains(&ends));
    let bounds = Bounds {
        dead_rows: i64::MAX,
        held_ms: 100,
    };
    assert!(!told(&vitals::look(&engine, bounds).await.unwrap()));
    sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM run_queue")
        .execute(&mut session)
        .await
        .unwrap();
    until(&engine, bounds, "it is told", told).await;
    sqlx::raw_sql("COMMIT").execute(&mut session).await.unwrap();
    until(&engine, bounds, "it is over", |alarms| !told(alarms)).await;
}

/// R21.1: dead rows that nobody vacuums are told by table, and no more once they are vacuumed.
#[tokio::test]
async fn dead_rows_are_told_until_they_are_vacuumed() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let bounds = Bounds {
        dead_rows: 100,
        held_ms: i64::MAX,
    };
    let told = |alarms: &[Alarm]| {
        alarms.iter().any(|alarm| {
            alarm.about == "dead rows of run_passes" && alarm.remedy.contains("VACUUM run_passes")
        })
    };
    for statement in [
        "INSERT INTO run_passes SELECT 'main', 't' || n, 1 FROM generate_series(1, 200) n",
        "DELETE FROM run_passes",
    ] {
        sqlx::query(statement)
            .execute(world.db.pool())
            .await
            .unwrap();
    }
    until(&engine, bounds, "they are told", told).await;
    // Until the oldest snapshot of the moment is gone, vacuum leaves some.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        sqlx::query("VACUUM run_passes")
            .execute(world.db.pool())
            .await
            .unwrap();
        if vitals::look(&engine, bounds).await.unwrap().is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "still told");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// R21.1: each hot table has vacuum settings of its own, from its migration.
#[tokio::test]
async fn each_hot_table_is_vacuumed_by_count_and_not_by_share() {
    let world = World::new().await;
    for table in HOT_TABLES {
        let options: Vec<String> = sqlx::query_scalar(
            "SELECT unnest(reloptions) FROM pg_class WHERE oid = to_regclass($1)",
        )
        .bind(table)
        .fetch_all(world.db.pool())
        .await
        .unwrap();
        for option in [
            "autovacuum_vacuum_scale_factor=0",
            "autovacuum_vacuum_threshold=5000",
            "autovacuum_vacuum_cost_delay=0",
        ] {
            assert!(options.iter().any(|o| o == option), "{table}: {options:?}");
        }
    }
    let found = world.store().vitals().await.unwrap();
    assert_eq!(found.tables.len(), HOT_TABLES.len());
}
