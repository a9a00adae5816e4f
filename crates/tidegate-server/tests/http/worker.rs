//! R4: the worker protocol over HTTP.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_client::WorkerApi;
use tidegate_model::{
    Code, PoolId,
    api::{ClaimRequest, CompleteRun, RenewRequest},
    principal::Role,
};
use tidegate_server::InProcessWorker;

use crate::rig::{Rig, answer, claim_body, eventually, root};

async fn attempt(
    rig: &Rig,
    worker: &str,
    lease: &Value,
    verb: &str,
    fields: Value,
) -> crate::rig::Answer {
    let run = lease["run"]["runId"].as_str().unwrap();
    let mut body = json!({"fence": lease["fence"]});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    rig.post(&format!("/v1/worker/runs/{run}/{verb}"), worker, body)
        .await
}

fn digest() -> String {
    format!("sha256:{}", "0".repeat(64))
}

#[tokio::test]
async fn a_run_is_claimed_renewed_and_completed() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    assert_eq!(lease["attempt"], 1);
    let held = json!({"runId": run, "fence": lease["fence"]});
    let renewed = rig
        .post("/v1/worker/renew", &worker, json!({"leases": [held]}))
        .await
        .json();
    assert_eq!(renewed["renewed"], json!([held]));
    let done = attempt(
        &rig,
        &worker,
        &lease,
        "complete",
        json!({"result": {"answer": 42}}),
    )
    .await;
    assert_eq!(done.json()["state"], "succeeded");
    let view = rig.get(&format!("/v1/runs/{run}"), &acme).await.json();
    assert_eq!(view["result"], json!({"answer": 42}));
    let lost = rig
        .post("/v1/worker/renew", &worker, json!({"leases": [held]}))
        .await
        .json();
    assert_eq!(lost["lost"], json!([held]));
}

/// R4.2: a stale, a made-up and a malformed fence change nothing.
#[tokio::test]
async fn stale_fences_are_refused_in_every_write() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let stale = rig.claim(&worker).await;
    let handed = attempt(&rig, &worker, &stale, "release", json!({})).await;
    assert_eq!(handed.json()["state"], "queued", "{handed:?}");
    let lease = rig.claim(&worker).await;
    assert_ne!(lease["fence"], stale["fence"]);
    let writes = [
        (
            "events",
            json!({"events": [{"seq": lease["nextSeq"], "kind": "worker.note"}]}),
        ),
        ("context", json!({"limit": 1})),
        (
            "effects",
            json!({"callId": "c1", "tool": "a/b", "argumentsDigest": digest(), "idempotent": true}),
        ),
        ("effects/c1", json!({"outcome": "done"})),
        ("complete", json!({"result": "late"})),
        ("fail", json!({"code": "WORKER_FAILED", "retryable": true})),
        ("release", json!({})),
        (
            "children",
            json!({"key": "a", "capability": "chat", "input": "hello"}),
        ),
        (
            "wait",
            json!({"input": {"kind": "text", "prompt": "which?"}}),
        ),
    ];
    for fence in [stale["fence"].as_str().unwrap(), "9.999", "0.0"] {
        for (verb, fields) in &writes {
            let mut claimed = lease.clone();
            claimed["fence"] = json!(fence);
            let answer = attempt(&rig, &worker, &claimed, verb, fields.clone()).await;
            assert_eq!(
                answer.status,
                StatusCode::CONFLICT,
                "{fence} {verb} {answer:?}"
            );
            assert_eq!(answer.problem().code, Code::LeaseLost);
        }
    }
    let mut nonsense = lease.clone();
    nonsense["fence"] = json!("1");
    let answer = attempt(&rig, &worker, &nonsense, "release", json!({})).await;
    assert_eq!(answer.refusal(), "INVALID_ARGUMENT fence");
    let view = rig.get(&format!("/v1/runs/{run}"), &acme).await.json();
    assert_eq!(view["state"], "running");
}

/// R18.6: a protocol that is too old cannot claim; nor can anything malformed.
#[tokio::test]
async fn bad_claims_are_refused_by_field() {
    let rig = Rig::new().await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let with = |field: &str, value: Value| {
        let mut body = claim_body(0);
        body[field] = value;
        body
    };
    let cases = [
        (with("max", json!(0)), "INVALID_ARGUMENT max"),
        (with("max", json!(1_000_000)), "INVALID_ARGUMENT max"),
        (with("max", json!(-1)), "INVALID_ARGUMENT max"),
        (with("waitMs", json!(30_001)), "INVALID_ARGUMENT waitMs"),
        (with("workerId", json!("")), "INVALID_ARGUMENT workerId"),
        (with("workerId", json!("a b")), "INVALID_ARGUMENT workerId"),
        (with("protocolVersion", json!(0)), "PROTOCOL_TOO_OLD"),
        (with("pool", json!("elsewhere")), "UNKNOWN_FIELD pool"),
        (with("tenant", json!("acme")), "UNKNOWN_FIELD tenant"),
    ];
    for (body, expected) in cases {
        let answer = rig.post("/v1/worker/claim", &worker, body.clone()).await;
        assert_eq!(answer.refusal(), expected, "{body}");
    }
}

/// A claim that waits is answered when work comes, not when its time is over.
#[tokio::test]
async fn a_long_poll_is_woken_by_a_submission() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let empty = rig.post("/v1/worker/claim", &worker, claim_body(0)).await;
    assert_eq!(empty.json(), json!({"leases": []}));
    let started = Instant::now();
    let submit = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        rig.submit(&acme).await
    };
    let claim = rig.post("/v1/worker/claim", &worker, claim_body(25_000));
    let (run, answer) = tokio::join!(submit, claim);
    assert_eq!(answer.json()["leases"][0]["run"]["runId"], run);
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

/// O-32: what a claimer that has gone was given comes back at once and costs no attempt, however long the statement took
/// that gave it.
#[tokio::test]
async fn a_claimer_that_leaves_takes_nothing_with_it() {
    // Whatever was not handed back would stay away longer than this test lasts.
    let rig = Rig::with(|settings| settings.lease_ms = 120_000).await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    // No lease can be written now; everything can be read.
    let mut writers_wait = rig.db.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE run_leases IN SHARE MODE")
        .execute(&mut *writers_wait)
        .await
        .unwrap();
    let claim = rig.request("POST", "/v1/worker/claim").bearer_auth(&worker);
    let claim = tokio::spawn(claim.json(&claim_body(20_000)).send());
    let writing = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND query LIKE '/* attempt:open */%'";
    let is_writing = async || {
        let claims: i64 = sqlx::query_scalar(writing)
            .fetch_one(rig.db.pool())
            .await
            .unwrap();
        (claims > 0).then_some(())
    };
    eventually("the claim writes a lease", is_writing).await;
    claim.abort();
    // The server knows that the claimer has gone long before its statement is over.
    tokio::time::sleep(Duration::from_secs(2)).await;
    writers_wait.rollback().await.unwrap();
    let lease = eventually("the run can be claimed by another", async || {
        let answer = rig.post("/v1/worker/claim", &worker, claim_body(500)).await;
        answer.json()["leases"].as_array().unwrap().first().cloned()
    })
    .await;
    assert_eq!(lease["run"]["runId"], run);
    attempt(&rig, &worker, &lease, "complete", json!({})).await;
    let path = format!("/v1/runs/{run}/explain");
    let explained = rig.get(&path, &acme).await.json();
    assert_eq!(
        explained["run"]["attempts"], 1,
        "handing back costs no attempt: {explained}"
    );
    let outcomes: Vec<&Value> = explained["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| &attempt["outcome"])
        .collect();
    assert_eq!(outcomes, ["released", "succeeded"]);
}

/// O-32: a claim that only waited stops waiting when its claimer goes, and takes nothing that comes afterwards.
#[tokio::test]
async fn nobody_claims_for_a_claimer_that_has_gone() {
    let rig = Rig::with(|settings| settings.lease_ms = 120_000).await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let claim = rig.request("POST", "/v1/worker/claim").bearer_auth(&worker);
    let claim = tokio::spawn(claim.json(&claim_body(20_000)).send());
    let waiting = || rig.engine.claims().waiting().values().sum::<u32>();
    eventually("it waits", async || (waiting() > 0).then_some(())).await;
    let left = Instant::now();
    claim.abort();
    eventually("it waits no more", async || (waiting() == 0).then_some(())).await;
    assert!(left.elapsed() < Duration::from_secs(15));
}

/// R2.1: a key that is revoked or runs out while its claim waits is given nothing, at once and also where work comes in the
/// moment before it is noticed.
#[tokio::test]
async fn a_claim_ends_with_its_key() {
    let rig = Rig::with(|settings| settings.lease_ms = 120_000).await;
    let acme = rig.tenant("acme").await;
    let admin = rig.key(Role::SuperAdmin, "", "").await;
    let waiting = || rig.engine.claims().waiting().values().sum::<u32>();
    for work_first in [false, true] {
        let body = json!({"role": "worker", "pool": "builtin"});
        let made = rig.post("/v1/admin/keys", &admin, body).await.json();
        let secret = made["secret"].as_str().unwrap().to_owned();
        let claim = rig.request("POST", "/v1/worker/claim").bearer_auth(&secret);
        let claim = tokio::spawn(answer(claim.json(&claim_body(25_000))));
        eventually("it waits", async || (waiting() > 0).then_some(())).await;
        let path = format!("/v1/admin/keys/{}", made["key"]["keyId"].as_str().unwrap());
        let revoked = rig.call("DELETE", &path, &admin, Value::Null).await;
        assert_eq!(revoked.status, StatusCode::OK);
        if work_first {
            rig.submit(&acme).await;
        }
        let ended = claim.await.unwrap();
        assert_eq!(ended.status, StatusCode::UNAUTHORIZED, "{ended:?}");
    }
    // What the second one had taken was handed back, as the same attempt.
    let worker = rig.key(Role::Worker, "", "builtin").await;
    assert_eq!(rig.claim(&worker).await["attempt"], 1);
}

/// Bad input: events that are none say nothing of a lease, and a fence is written in one way.
#[tokio::test]
async fn an_append_of_nothing_is_refused() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let refused = attempt(&rig, &worker, &lease, "events", json!({"events": []})).await;
    assert_eq!(refused.refusal(), "INVALID_ARGUMENT events");
    let written = lease["fence"].as_str().unwrap();
    let other = json!({"events": [], "fence": format!("0{written}")});
    let refused = attempt(&rig, &worker, &lease, "events", other).await;
    assert_eq!(refused.refusal(), "INVALID_ARGUMENT fence");
}

/// R1.7: a draining instance gives no new work and still takes what running attempts write.
#[tokio::test]
async fn a_draining_server_refuses_claims_and_takes_results() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let waiting = rig.post("/v1/worker/claim", &worker, claim_body(25_000));
    let drain = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        rig.shutdown.drain();
    };
    let (waited, ()) = tokio::join!(waiting, drain);
    assert_eq!(
        waited.json(),
        json!({"leases": []}),
        "a claim that waits ends empty"
    );
    let refused = rig.post("/v1/worker/claim", &worker, claim_body(0)).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let problem = refused.problem();
    assert_eq!(
        (problem.code, problem.retryable),
        (Code::ShuttingDown, true)
    );
    let done = attempt(&rig, &worker, &lease, "complete", json!({})).await;
    assert_eq!(done.json()["state"], "succeeded");
}

/// The built-in executor's transport sees what a worker over HTTP sees.
#[tokio::test]
async fn the_transport_in_process_is_the_same_protocol() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let principal = tidegate_engine::Principal {
        role: Role::Worker,
        pool: Some(PoolId::builtin()),
        ..root()
    };
    let worker = InProcessWorker::new(rig.engine.clone(), principal, rig.shutdown.clone());
    let run = rig.submit(&acme).await;
    let request: ClaimRequest = serde_json::from_value(claim_body(5_000)).unwrap();
    let lease = worker
        .claim(request.clone())
        .await
        .unwrap()
        .leases
        .remove(0);
    assert_eq!(lease.run.run_id.to_string(), run);
    let complete = CompleteRun {
        fence: lease.fence,
        result: json!(1),
        messages: Vec::new(),
        usage: tidegate_model::api::AttemptUsage::default(),
    };
    let done = worker
        .complete(lease.run.run_id, complete.clone())
        .await
        .unwrap();
    assert!(done.state.is_ended());
    let late = worker.complete(lease.run.run_id, complete).await;
    assert!(late.is_ok() || late.unwrap_err().is_lease_lost());
    let none = worker
        .renew(RenewRequest { leases: Vec::new() })
        .await
        .unwrap();
    assert!(none.renewed.is_empty());
    rig.shutdown.drain();
    let refused = worker.claim(request).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::ShuttingDown));
}

/// Bad input: numbers and times that no column could hold are refused by their field, before a statement reckons with them.
#[tokio::test]
async fn numbers_beyond_all_columns_are_refused_by_field() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let note = |seq: i64| json!({"seq": seq, "kind": "worker.note"});
    let ask = json!({"kind": "text", "prompt": "which?"});
    let cases = [
        (
            "events",
            json!({"events": [note(i64::MAX)]}),
            "events[0].seq",
        ),
        (
            "events",
            json!({"events": [note(i64::MAX - 1), note(i64::MAX)]}),
            "events[0].seq",
        ),
        (
            "events",
            json!({"events": [note(i64::MIN)]}),
            "events[0].seq",
        ),
        (
            "wait",
            json!({"input": ask, "until": "-200000-01-01T00:00:00Z"}),
            "until",
        ),
        (
            "wait",
            json!({"input": ask, "until": "+200000-01-01T00:00:00Z"}),
            "until",
        ),
        (
            "complete",
            json!({"usage": {"tokens": i64::MAX}}),
            "usage.tokens",
        ),
    ];
    for (verb, fields, field) in cases {
        let answer = attempt(&rig, &worker, &lease, verb, fields.clone()).await;
        assert_eq!(
            answer.refusal(),
            format!("INVALID_ARGUMENT {field}"),
            "{verb} {fields}"
        );
    }
}
