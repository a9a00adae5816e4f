//! R4.5 over HTTP: the journal as a worker writes it, and the verdict of a person.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{Code, principal::Role};

use crate::rig::Rig;

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
