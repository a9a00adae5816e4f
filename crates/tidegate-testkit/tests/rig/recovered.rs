use std::time::{Duration, Instant};

use sqlx::PgPool;
use tidegate_testkit::{TestCluster, TestDb};

async fn fill(db: &TestDb) {
    sqlx::raw_sql("CREATE TABLE kept AS SELECT 7 AS n")
        .execute(db.pool())
        .await
        .unwrap();
}

async fn kept(pool: &PgPool) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar("SELECT n FROM kept")
        .fetch_one(pool)
        .await
}

async fn timeline(pool: &PgPool) -> i32 {
    sqlx::query_scalar("SELECT timeline_id FROM pg_control_checkpoint()")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_dump_is_restored_beside_the_original() {
    let db = TestDb::empty().await;
    fill(&db).await;
    let restored = db.restored_from_dump().await;
    assert_ne!(restored.name(), db.name());
    assert_eq!(kept(restored.pool()).await.unwrap(), 7);
}

#[tokio::test]
async fn a_standby_follows_and_after_promotion_writes_on_a_timeline_of_its_own() {
    let primary = TestCluster::start(|options| options).await;
    let db = primary.empty_db().await;
    let standby = primary.standby().await;
    fill(&db).await;
    let copy = db.on(&standby);
    let deadline = Instant::now() + Duration::from_secs(20);
    while kept(copy.pool()).await.is_err() {
        assert!(Instant::now() < deadline, "the standby does not follow");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    primary.cluster().kill9().await.unwrap();
    standby.cluster().promote().await.unwrap();
    sqlx::raw_sql("UPDATE kept SET n = 8; CHECKPOINT")
        .execute(copy.pool())
        .await
        .unwrap();
    assert_eq!(kept(copy.pool()).await.unwrap(), 8);
    assert_eq!(timeline(copy.pool()).await, 2);
}
