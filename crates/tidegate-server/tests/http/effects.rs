//! R4.5 over HTTP: the journal as a worker writes it, and the verdict of a person.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{Code, principal::Role};

use crate::rig::{Rig, eventually};

struct Held {
    run: String,
    fence: String,
}

impl Held {
    async fn claim(rig: &Rig, worker: &str) -> Self {
        let lease = rig.claim(worker).await;
        Self {
            run: lease["run"]["runId"].as_str().unwrap().to_owned(),
            fence: lease["fence"].as_str().unwrap().to_owned(),
        }
    }

    async fn write(
        &self,
        rig: &Rig,
        worker: &str,
        verb: &str,
        fields: Value,
    ) -> crate::rig::Answer {
        let mut body = json!({ "fence": self.fence });
        let members = body.as_object_mut().unwrap();
        members.extend(fields.as_object().unwrap().clone());
        let path = format!("/v1/worker/runs/{}/{verb}", self.run);
        rig.post(&path, worker, body).await
    }
}

fn intent(call: &str) -> Value {
    json!({
        "callId": call,
        "tool": "files/write",
        "argumentsDigest": format!("sha256:{}", "a".repeat(64)),
        "idempotent": false,
    })
}

/// R4.5: intent, unknown outcome, review, a person's word, and the next attempt that is told.
#[tokio::test]
async fn a_run_goes_through_review() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let held = Held::claim(&rig, &worker).await;
    let taken = held.write(&rig, &worker, "effects", intent("c1")).await;
    assert_eq!((taken.status, taken.json()), (StatusCode::OK, json!({})));
    held.write(&rig, &worker, "effects", intent("c2")).await;
    let outcome = json!({"outcome": "done", "result": {"text": "written"}});
    let settled = held.write(&rig, &worker, "effects/c2", outcome).await;
    assert_eq!(settled.status, StatusCode::NO_CONTENT);
    let failure = json!({"code": "TOOL_TIMEOUT", "retryable": true});
    let failed = held.write(&rig, &worker, "fail", failure).await;
    assert_eq!(failed.json(), json!({"state": "review"}));

    let view = rig.get(&format!("/v1/runs/{run}"), &acme).await.json();
    assert_eq!(view["state"], "review");
    let asked = &view["review"]["effects"];
    assert_eq!(
        (&asked[0]["callId"], &asked[1]),
        (&json!("c1"), &Value::Null)
    );
    let listed = rig.get("/v1/runs?state=review", &acme).await.json();
    assert_eq!(listed["items"][0]["runId"], run);
    let path = format!("/v1/runs/{run}/resolve");
    let verdict = json!({"verdict": "confirmDone", "note": "it is there"});
    let resolved = rig.post(&path, &acme, verdict.clone()).await;
    assert_eq!(resolved.json()["state"], "queued", "{resolved:?}");
    let again = rig.post(&path, &acme, verdict).await;
    assert_eq!(again.problem().code, Code::StateConflict);

    let next = Held::claim(&rig, &worker).await;
    let known = next.write(&rig, &worker, "effects", intent("c1")).await;
    let known = known.json()["recorded"].clone();
    assert_eq!(
        (&known["outcome"], &known["source"], &known["note"]),
        (&json!("done"), &json!("person"), &json!("it is there"))
    );
    let context = json!({"limit": 1});
    let context = next.write(&rig, &worker, "context", context).await.json();
    assert_eq!(context["effects"].as_array().unwrap().len(), 2);
    let explained = rig.get(&format!("/v1/runs/{run}/explain"), &acme).await;
    let explained = explained.json();
    assert_eq!(explained["effects"][1]["outcome"], "done");
    assert!(explained["effects"][1].get("result").is_none());
}

/// R4.5: what cannot be meant is refused by field.
#[tokio::test]
async fn bad_effects_and_verdicts_are_refused() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let held = Held::claim(&rig, &worker).await;
    let with = |field: &str, value: Value| {
        let mut body = intent("c1");
        body[field] = value;
        body
    };
    for (body, refusal) in [
        (with("callId", json!("a/b")), "INVALID_ARGUMENT callId"),
        (with("tool", json!("")), "INVALID_ARGUMENT tool"),
        (with("tool", json!("a\0b")), "INVALID_ARGUMENT tool"),
        (
            with("argumentsDigest", json!("sha256:ab")),
            "INVALID_ARGUMENT argumentsDigest",
        ),
        (with("arguments", json!({})), "UNKNOWN_FIELD arguments"),
    ] {
        let answer = held.write(&rig, &worker, "effects", body).await;
        assert_eq!(answer.refusal(), refusal);
    }
    held.write(&rig, &worker, "effects", intent("c1")).await;
    let large = json!({"outcome": "done", "result": "x".repeat(65 << 10)});
    for (verb, body, code) in [
        (
            "effects/c1",
            json!({"outcome": "notDone"}),
            Code::InvalidArgument,
        ),
        ("effects/c1", large, Code::PayloadTooLarge),
        ("effects/c9", json!({"outcome": "done"}), Code::NotFound),
    ] {
        let answer = held.write(&rig, &worker, verb, body).await;
        assert_eq!(answer.problem().code, code, "{verb}");
    }
    let path = format!("/v1/runs/{run}/resolve");
    for (body, refusal) in [
        (json!({"verdict": "maybe"}), "INVALID_ARGUMENT verdict"),
        (
            json!({"verdict": "abandon", "callId": "c1"}),
            "INVALID_ARGUMENT callId",
        ),
        (
            json!({"verdict": "abandon", "note": "x".repeat(2_001)}),
            "INVALID_ARGUMENT note",
        ),
    ] {
        assert_eq!(rig.post(&path, &acme, body).await.refusal(), refusal);
    }
    let running = rig.post(&path, &acme, json!({"verdict": "abandon"})).await;
    assert_eq!(running.problem().code, Code::StateConflict);
    let usage = json!({"leases": [{"runId": run, "fence": held.fence, "usage": {"tokens": -1}}]});
    let renewed = rig.post("/v1/worker/renew", &worker, usage).await;
    assert_eq!(renewed.refusal(), "INVALID_ARGUMENT leases[0].usage.tokens");
}

/// R3.11, R4.5: a review keeps a run past its deadline, since an effect is unknown; a verdict after it ends the run as
/// expired at once, with the fact in the journal, and queues nothing.
#[tokio::test]
async fn a_review_that_is_resolved_after_the_deadline_ends_the_run() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let in_a_while = "SELECT clock_timestamp() + interval '4 seconds'";
    let deadline: chrono::DateTime<chrono::Utc> = sqlx::query_scalar(in_a_while)
        .fetch_one(rig.db.pool())
        .await
        .unwrap();
    let mut runs = Vec::new();
    for _ in 0..2 {
        let body = json!({"capability": "chat", "input": "hello", "deadline": deadline});
        let made = rig.post("/v1/runs", &acme, body).await;
        assert_eq!(made.status, StatusCode::ACCEPTED, "{made:?}");
        let held = Held::claim(&rig, &worker).await;
        held.write(&rig, &worker, "effects", intent("c1")).await;
        let failure = json!({"code": "TOOL_TIMEOUT", "retryable": true});
        let failed = held.write(&rig, &worker, "fail", failure).await;
        assert_eq!(failed.json()["state"], "review", "{failed:?}");
        runs.push(held.run);
    }
    eventually("the deadline passes", async || {
        let passed: bool = sqlx::query_scalar("SELECT clock_timestamp() > $1")
            .bind(deadline)
            .fetch_one(rig.db.pool())
            .await
            .unwrap();
        passed.then_some(())
    })
    .await;
    for (run, verdict) in runs.iter().zip(["confirmDone", "confirmNotDone"]) {
        let view = rig.get(&format!("/v1/runs/{run}"), &acme).await.json();
        assert_eq!(view["state"], "review");
        let path = format!("/v1/runs/{run}/resolve");
        let resolved = rig.post(&path, &acme, json!({"verdict": verdict})).await;
        let resolved = resolved.json();
        assert_eq!(
            (&resolved["state"], &resolved["code"]),
            (&json!("expired"), &json!("DEADLINE_EXCEEDED")),
            "{resolved}"
        );
        let explained = rig.get(&format!("/v1/runs/{run}/explain"), &acme).await;
        assert_eq!(explained.json()["effects"][0]["source"], "person");
    }
}

/// R4.5: who completes, or obeys a cancel, over an open intent ends the run; the explanation shows what nobody knows.
#[tokio::test]
async fn an_end_over_an_open_intent_is_shown() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    for cancelled in [false, true] {
        let run = rig.submit(&acme).await;
        let held = Held::claim(&rig, &worker).await;
        held.write(&rig, &worker, "effects", intent("c1")).await;
        let (verb, body, state) = if cancelled {
            let path = format!("/v1/runs/{run}/cancel");
            rig.post(&path, &acme, json!({})).await;
            let body = json!({"code": "CANCELLED", "retryable": false});
            ("fail", body, "cancelled")
        } else {
            ("complete", json!({"result": 1}), "succeeded")
        };
        let ended = held.write(&rig, &worker, verb, body).await;
        assert_eq!(ended.json()["state"], state, "{ended:?}");
        let explained = rig.get(&format!("/v1/runs/{run}/explain"), &acme).await;
        let effect = &explained.json()["effects"][0];
        assert_eq!(effect["callId"], "c1");
        assert!(effect.get("outcome").is_none(), "{effect}");
    }
}
