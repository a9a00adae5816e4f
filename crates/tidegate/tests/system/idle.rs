//! What a server with nothing to do asks of its database.

use std::time::Duration;

use tidegate_testkit::TestCluster;

use crate::rig::{ready, serve};

/// The aim is five statements per second; what starts up and what comes once a minute must fit in as well.
const PER_SECOND_MAX: f64 = 15.0;
const WARM_UP: Duration = Duration::from_secs(3);
const WATCHED: Duration = Duration::from_secs(8);

/// An idle server polls little. The statements are listed, so that a failure names who polls.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_asks_little() {
    let cluster = TestCluster::start(|options| {
        options.setting("shared_preload_libraries", "pg_stat_statements")
    })
    .await;
    let db = cluster.migrated_db().await;
    let extension = "CREATE EXTENSION pg_stat_statements";
    sqlx::raw_sql(extension)
        .execute(db.pool())
        .await
        .expect("an extension of every PostgreSQL");
    let mut server = serve(&db).start();
    ready(&mut server).await;
    tokio::time::sleep(WARM_UP).await;
    sqlx::raw_sql("SELECT pg_stat_statements_reset()")
        .execute(db.pool())
        .await
        .expect("reset");
    tokio::time::sleep(WATCHED).await;
    let asked: Vec<(i64, String)> = sqlx::query_as(
        "SELECT calls, left(regexp_replace(query, '\\s+', ' ', 'g'), 100) FROM pg_stat_statements s
         JOIN pg_database d ON d.oid = s.dbid
         WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%' ORDER BY calls DESC",
    )
    .fetch_all(db.pool())
    .await
    .expect("statements");
    let seconds = WATCHED.as_secs_f64();
    let mut total = 0.0;
    for (calls, query) in &asked {
        let per_second = f64::from(i32::try_from(*calls).expect("few")) / seconds;
        total += per_second;
        println!("{per_second:6.2} /s {query}");
    }
    println!("{total:6.2} /s in all");
    assert!(total > 0.0, "nothing was counted");
    assert!(total <= PER_SECOND_MAX, "{total} statements per second");
}
