//! A database that is full or gone: a clear, stable error, nothing half-done, and service back without a restart.

use std::time::Instant;

use reqwest::StatusCode;
use serde_json::json;
use sqlx::AssertSqlSafe;
use tidegate_model::{Code, api::Problem, principal::Role};
use tidegate_store::{ConnectOptions, Store, connect};
use tidegate_testkit::{Proxy, TestDb};

use crate::rig::{PATIENCE, Rig, answer};

/// Tables that an accepted run writes, each full in turn; the first and the last write of the transaction among them.
const WRITTEN: [&str; 3] = ["agent_runs", "run_queue", "run_events"];

async fn execute(rig: &Rig, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(rig.db.pool())
        .await
        .unwrap();
}

async fn runs(rig: &Rig) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM agent_runs")
        .fetch_one(rig.db.pool())
        .await
        .unwrap()
}

/// R1.1: a statement that the database gave up for another one, for a lock or for an administrator may be sent again.
#[tokio::test]
async fn what_the_database_gave_up_may_be_sent_again() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    for state in ["40001", "40P01", "55P03", "57014"] {
        for sql in [
            format!(
                "CREATE OR REPLACE FUNCTION give_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     RAISE EXCEPTION 'given up' USING ERRCODE = '{state}'; END $$"
            ),
            "CREATE OR REPLACE TRIGGER gives_up BEFORE INSERT ON agent_runs EXECUTE FUNCTION give_up()".to_owned(),
        ] {
            execute(&rig, sql).await;
        }
        let body = json!({"capability": "chat", "input": "hello"});
        let refused = rig.post("/v1/runs", &acme, body).await.problem();
        let told = (refused.code, refused.status, refused.retryable);
        assert_eq!(told, (Code::DatabaseUnavailable, 503, true), "{state}");
    }
}

/// R3.1, R1.1: a full disk (SQLSTATE 53100) at any write of a submission refuses it whole, and the same request works when
/// there is room again.
#[tokio::test]
async fn a_full_disk_loses_nothing_and_invents_nothing() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    execute(
        &rig,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
         END $$"
            .to_owned(),
    )
    .await;
    for (round, table) in WRITTEN.iter().enumerate() {
        execute(
            &rig,
            format!("CREATE TRIGGER no_room BEFORE INSERT ON {table} EXECUTE FUNCTION full_disk()"),
        )
        .await;
        let submit = || {
            rig.request("POST", "/v1/runs")
                .bearer_auth(&acme)
                .header("idempotency-key", format!("key-{round}"))
                .json(&json!({"capability": "chat", "input": "hello"}))
        };
        let refused = answer(submit()).await.problem();
        assert_eq!(
            (refused.code, refused.status),
            (Code::DatabaseUnavailable, 503),
            "{table}"
        );
        assert!(refused.retryable);
        let told = refused.detail.unwrap();
        assert!(
            !told.contains("device"),
            "the database's own words stay inside: {told}"
        );
        execute(&rig, format!("DROP TRIGGER no_room ON {table}")).await;
        assert_eq!(
            runs(&rig).await,
            i64::try_from(round).unwrap(),
            "{table}: nothing half-done"
        );
        assert_eq!(
            answer(submit()).await.status,
            StatusCode::ACCEPTED,
            "{table}"
        );
        assert_eq!(
            answer(submit()).await.status,
            StatusCode::OK,
            "{table}: a repeat"
        );
    }
    tidegate_testkit::audit(rig.db.pool()).await;
}

/// R21.4: without its database a server lives, is not ready and refuses clearly; when it is back, so is the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_database_is_said_and_survived() {
    let db = TestDb::new().await;
    let proxy = Proxy::start(db.target()).await;
    let mut options = ConnectOptions::new(db.url_at(proxy.address()));
    options.acquire_timeout = std::time::Duration::from_secs(1);
    let store = Store::new(connect(&options).unwrap());
    let rig = Rig::over(db, store, |_| {}).await;
    let acme = rig.tenant("acme").await;
    rig.submit(&acme).await;
    proxy.down();
    let body = json!({"capability": "chat", "input": "hello"});
    let refused = rig.post("/v1/runs", &acme, body.clone()).await.problem();
    assert_eq!(refused.code, Code::DatabaseUnavailable);
    let keyed = |problem: &Problem| format!("{:?}", problem.detail).contains("Idempotency-Key");
    assert!(keyed(&refused), "{refused:?}");
    let read = rig.get("/v1/runs", &acme).await.problem();
    assert_eq!(read.code, Code::DatabaseUnavailable);
    assert!(!keyed(&read), "a read needs no key: {read:?}");
    assert_eq!(rig.get("/livez", "").await.status, StatusCode::OK);
    assert_eq!(
        rig.get("/readyz", "").await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    proxy.heal();
    let deadline = Instant::now() + PATIENCE;
    while rig.post("/v1/runs", &acme, body.clone()).await.status != StatusCode::ACCEPTED {
        assert!(Instant::now() < deadline, "the service does not come back");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let worker = rig.key(Role::Worker, "", "builtin").await;
    rig.claim(&worker).await;
    tidegate_testkit::audit(rig.db.pool()).await;
}

/// R21.4: a database that accepts and never answers does not hang its clients; they are told within a bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_database_is_said_within_a_bound() {
    let db = TestDb::new().await;
    let proxy = Proxy::start(db.target()).await;
    let store = Store::new(connect(&ConnectOptions::new(db.url_at(proxy.address()))).unwrap());
    let rig = Rig::over(db, store, |_| {}).await;
    let acme = rig.tenant("acme").await;
    rig.submit(&acme).await;
    proxy.pause();
    let body = json!({"capability": "chat", "input": "hello"});
    // The client of the rig gives up after PATIENCE, which fails the test.
    let refused = rig.post("/v1/runs", &acme, body.clone()).await.problem();
    assert_eq!(refused.code, Code::DatabaseUnavailable);
    assert!(refused.retry_after_ms.is_some());
    proxy.heal();
    let deadline = Instant::now() + PATIENCE;
    while rig.post("/v1/runs", &acme, body.clone()).await.status != StatusCode::ACCEPTED {
        assert!(Instant::now() < deadline, "the service does not come back");
    }
    tidegate_testkit::audit(rig.db.pool()).await;
}
