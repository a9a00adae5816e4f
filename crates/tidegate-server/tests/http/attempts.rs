//! How attempts end, and what a worker may say of it.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{Code, principal::Role};

use crate::rig::{Answer, Rig, answer};

/// Ends the attempt of a lease.
async fn end(rig: &Rig, worker: &str, lease: &Value, verb: &str, fields: &Value) -> Answer {
    let mut body = json!({ "fence": lease["fence"] });
    let members = body.as_object_mut().unwrap();
    members.extend(fields.as_object().unwrap().clone());
    let run = lease["run"]["runId"].as_str().unwrap();
    let path = format!("/v1/worker/runs/{run}/{verb}");
    rig.post(&path, worker, body).await
}

/// R4.2: an end whose answer was lost is answered again; another end, another pool and an attempt that others ended are
/// refused as ever.
#[tokio::test]
async fn the_same_end_again_is_answered_again() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    rig.tenant("globex").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let stranger = rig.key(Role::Worker, "", "default").await;
    let ends = [
        ("complete", json!({"result": 1}), "succeeded"),
        (
            "fail",
            json!({"code": "TOOL_TIMEOUT", "retryable": false}),
            "failed",
        ),
        (
            "wait",
            json!({"input": {"kind": "text", "prompt": "Which?"}}),
            "waiting",
        ),
    ];
    for (verb, fields, state) in &ends {
        rig.submit(&acme).await;
        let lease = rig.claim(&worker).await;
        for _ in 0..3 {
            let ended = end(&rig, &worker, &lease, verb, fields).await;
            assert_eq!(ended.status, StatusCode::OK, "{verb}: {ended:?}");
            assert_eq!(ended.json()["state"], *state, "{verb}");
        }
        let handed_back = ("release", json!({}), "queued");
        for (other, fields, _) in ends.iter().chain([&handed_back]) {
            if other != verb {
                let refused = end(&rig, &worker, &lease, other, fields).await;
                let code = refused.problem().code;
                assert_eq!(code, Code::LeaseLost, "{verb}, then {other}");
            }
        }
        let foreign = end(&rig, &stranger, &lease, verb, fields).await;
        assert_eq!(foreign.problem().code, Code::LeaseLost, "{verb}");
    }
    rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let cancel = format!(
        "/v1/runs/{}/cancel",
        lease["run"]["runId"].as_str().unwrap()
    );
    rig.post(&cancel, &acme, json!({})).await;
    let done = json!({"result": 1});
    let stopped = end(&rig, &worker, &lease, "complete", &done).await;
    assert_eq!(stopped.json()["state"], "cancelled");
    let again = end(&rig, &worker, &lease, "complete", &done).await;
    assert_eq!(again.problem().code, Code::LeaseLost);
}

/// R4.2: who hears the answer to a failure late hears how much of the backoff is left, as the first answer said how much
/// there is.
#[tokio::test]
async fn a_repeated_failure_says_when_it_is_tried_again() {
    let rig = Rig::with(|settings| {
        settings.backoff_base_ms = 600_000;
        settings.backoff_max_ms = 600_000;
    })
    .await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let fields = json!({"code": "TOOL_TIMEOUT", "retryable": true, "retryAfterMs": 60_000});
    let mut shortest = i64::MAX;
    for _ in 0..3 {
        let ended = end(&rig, &worker, &lease, "fail", &fields).await.json();
        let left = ended["retryInMs"].as_i64().expect("a time");
        assert!(left > 0 && left <= shortest, "{left} of {shortest}");
        shortest = left;
    }
    let run = lease["run"]["runId"].as_str().unwrap();
    let again = rig
        .post(&format!("/v1/runs/{run}/requeue"), &acme, json!({}))
        .await;
    assert!(again.status.is_success(), "{again:?}");
    let ended = end(&rig, &worker, &lease, "fail", &fields).await;
    assert_eq!(ended.json()["retryInMs"], 0, "{ended:?}");
}

/// Bad input: a run fails with what a worker can mean, never in the platform's own words; the refusal names the others.
#[tokio::test]
async fn a_worker_fails_a_run_with_codes_of_its_own() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let fields = |code: Code| json!({"code": code, "retryable": false});
    for code in Code::ALL {
        if Code::OF_WORKERS.contains(code) {
            continue;
        }
        let refused = end(&rig, &worker, &lease, "fail", &fields(*code)).await;
        assert_eq!(refused.refusal(), "INVALID_ARGUMENT code", "{code}");
        let detail = refused.problem().detail.unwrap();
        assert!(detail.contains("WORKER_FAILED") && detail.contains(code.as_str()));
    }
    // Each of them stands in the contract.
    let contract = answer(rig.request("GET", "/openapi.json")).await.json();
    let said = &contract["components"]["schemas"]["FailRun"]["properties"]["code"]["description"];
    for code in Code::OF_WORKERS {
        let said = said.as_str().unwrap();
        assert!(said.contains(&format!("`{code}`")), "{code}: {said}");
    }
    let failed = end(
        &rig,
        &worker,
        &lease,
        "fail",
        &fields(Code::AgentStepsExhausted),
    )
    .await;
    assert_eq!(failed.json()["state"], "failed", "{failed:?}");
}
