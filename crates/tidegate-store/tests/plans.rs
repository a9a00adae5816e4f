//! Plans are kept (`docs/adr/0013-one-plan-per-connection.md`): what that must not lead to.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail loudly")]

use std::{fs, path::Path, time::Duration};

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use tidegate_store::{ConnectOptions, connect, migrate};
use tidegate_testkit::TestDb;

/// Tables that grow with every run.
const HISTORY: [&str; 8] = [
    "agent_runs",
    "run_attempts",
    "run_ends",
    "run_events",
    "run_effects",
    "messages",
    "audit_log",
    "idempotency_records",
];
/// Statements that read one of them in the order of an index, and stop.
const PAGES: [&str; 2] = [
    "DELETE FROM idempotency_records WHERE",
    "SELECT seq, at, actor, tenant, action",
];

/// The statements of the store, from the metadata that it is compiled with.
fn statements() -> Vec<(String, usize)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.sqlx");
    let files = fs::read_dir(directory).expect("query metadata");
    files
        .map(|file| {
            let text = fs::read_to_string(file.expect("a file").path()).expect("text");
            let query: Value = serde_json::from_str(&text).expect("JSON");
            let parameters = query["describe"]["parameters"]["Left"].as_array();
            let sql = query["query"].as_str().expect("SQL").to_owned();
            (sql, parameters.map_or(0, Vec::len))
        })
        .filter(|(sql, _)| !sql.starts_with("SET ") && !sql.starts_with("LOCK "))
        .collect()
}

/// The plan that is kept for a statement.
async fn kept_plan(connection: &mut PgConnection, sql: &str, parameters: usize) -> Value {
    let nulls = vec!["NULL"; parameters].join(", ");
    let arguments = if parameters == 0 {
        String::new()
    } else {
        format!("({nulls})")
    };
    let prepare = AssertSqlSafe(format!("PREPARE kept AS {sql}"));
    let prepared = sqlx::raw_sql(prepare).execute(&mut *connection).await;
    prepared.unwrap_or_else(|error| panic!("{error}: {sql}"));
    let explain = AssertSqlSafe(format!("EXPLAIN (FORMAT JSON) EXECUTE kept{arguments}"));
    let row = sqlx::raw_sql(explain).fetch_one(&mut *connection).await;
    let plan: Value = match row.expect("a plan").try_get_raw(0) {
        Ok(raw) => serde_json::from_str(raw.as_str().expect("text")).expect("JSON"),
        Err(error) => panic!("{error}"),
    };
    sqlx::raw_sql("DEALLOCATE kept")
        .execute(&mut *connection)
        .await
        .expect("deallocate");
    plan
}

/// The history tables that a plan reads from one end to the other.
fn read_whole(node: &Value, found: &mut Vec<String>) {
    let table = node["Relation Name"].as_str().unwrap_or_default();
    let scan = node["Node Type"].as_str().unwrap_or_default();
    let by_key = node.get("Index Cond").is_some() || node.get("Recheck Cond").is_some();
    if HISTORY.contains(&table) && scan.ends_with("Scan") && scan != "Tid Scan" && !by_key {
        found.push(format!("{scan} on {table}"));
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        read_whole(child, found);
    }
}

/// R3.8: a plan that was made when all tables were empty, and is kept while they grow, reads no history table whole.
#[tokio::test]
async fn no_kept_plan_reads_a_history_table_whole() {
    let db = TestDb::new().await;
    let applicant = migrate::Applicant {
        by: "test".to_owned(),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    migrate::migrate_with(db.pool(), &applicant, &migrate::OPTIONAL_SETS)
        .await
        .expect("all tables");
    let mut connection = db.pool().acquire().await.expect("a connection");
    let statements = statements();
    assert!(statements.len() > 100, "{}", statements.len());
    let mut wrong = Vec::new();
    for (sql, parameters) in &statements {
        if PAGES.iter().any(|page| sql.starts_with(page)) {
            continue;
        }
        let plan = kept_plan(&mut connection, sql, *parameters).await;
        let mut found = Vec::new();
        read_whole(&plan[0]["Plan"], &mut found);
        if !found.is_empty() {
            wrong.push(format!("{found:?}: {sql}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// R1.1: what a database was set to for others changes nothing of how statements run.
#[tokio::test]
async fn sessions_have_settings_of_their_own() {
    let db = TestDb::new().await;
    for setting in [
        "default_transaction_isolation = serializable",
        "statement_timeout = '1ms'",
        "lock_timeout = '1ms'",
        "idle_session_timeout = '1s'",
    ] {
        let sql = format!("ALTER DATABASE {} SET {setting}", db.name());
        let set = sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(db.pool())
            .await;
        set.expect("set");
    }
    let pool = connect(&ConnectOptions::new(db.url())).expect("a pool");
    let row = sqlx::query(
        "SELECT current_setting('transaction_isolation'), current_setting('statement_timeout'),
                current_setting('lock_timeout'), current_setting('idle_session_timeout')",
    );
    let row = row.fetch_one(&pool).await.expect("a session");
    let found: Vec<String> = (0..4).map(|column| row.get(column)).collect();
    assert_eq!(found, ["read committed", "0", "0", "0"]);
}

/// R3.8: a plan goes with its connection, so that it cannot be older than that may become.
#[tokio::test]
async fn connections_and_their_plans_grow_old() {
    let db = TestDb::new().await;
    let options = ConnectOptions {
        max_connections: 1,
        max_age: Duration::from_millis(200),
        ..ConnectOptions::new(db.url())
    };
    let pool = connect(&options).expect("a pool");
    let session = async || -> (i32, String) {
        let row = sqlx::query("SELECT pg_backend_pid(), current_setting('plan_cache_mode')")
            .fetch_one(&pool)
            .await
            .expect("a session");
        (row.get(0), row.get(1))
    };
    let (first, mode) = session().await;
    assert_eq!(mode, "force_generic_plan");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while session().await.0 == first {
        assert!(tokio::time::Instant::now() < deadline, "still {first}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
