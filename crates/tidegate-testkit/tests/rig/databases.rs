use std::time::{Duration, Instant};

use tidegate_testkit::{TestCluster, TestDb};

async fn tables(db: &TestDb) -> i64 {
    let sql = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    sqlx::query_scalar(sql).fetch_one(db.pool()).await.unwrap()
}

#[tokio::test]
async fn each_test_gets_a_copy_of_the_migrated_template() {
    let first = TestDb::new().await;
    let second = TestDb::new().await;
    assert_ne!(first.name(), second.name());
    assert!(tables(&first).await > 0);
    sqlx::raw_sql("CREATE TABLE only_here (id int)")
        .execute(first.pool())
        .await
        .unwrap();
    assert_eq!(tables(&first).await, tables(&second).await + 1);
    assert_eq!(tables(&TestDb::empty().await).await, 0);
}

#[tokio::test]
async fn copies_are_quick_and_are_dropped_with_their_handle() {
    let cluster = TestCluster::shared().await;
    let make = || cluster.db_from("small", async |_| {});
    let warm = make().await;
    let start = Instant::now();
    let copies = 10;
    let mut names = Vec::new();
    for _ in 0..copies {
        names.push(make().await.name().to_owned());
    }
    let each = start.elapsed() / copies;
    println!("one copy takes {each:?}");
    assert!(each < Duration::from_secs(1), "{each:?}");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left: i64 =
            sqlx::query_scalar("SELECT count(*) FROM pg_database WHERE datname = ANY($1)")
                .bind(&names)
                .fetch_one(warm.pool())
                .await
                .unwrap();
        if left == 0 {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{left} databases were not dropped"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
