//! R2.2: nothing of a tenant can be reached, seen or changed with the key of another.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{AdmissionId, Code, principal::Role};
use tidegate_server::routes::{ROUTES, Route, Verb};

use crate::rig::Rig;

/// What acme has.
struct Belongings {
    admission: String,
    admission_fence: String,
    conversation: String,
    run: String,
    fence: String,
    key: String,
}

impl Belongings {
    fn path(&self, route: &Route) -> String {
        route
            .path
            .replace("{runId}", &self.run)
            .replace("{conversationId}", &self.conversation)
            .replace("{keyId}", &self.key)
            .replace("{admissionId}", &self.admission)
            .replace("{callId}", "call_1")
            .replace("{name}", "nightly")
            .replace("{tenant}", "acme")
    }

    /// A body that the owner could send.
    fn body(&self, route: &Route) -> Value {
        let verb = route.path.rsplit('/').next().unwrap_or_default();
        match verb {
            "turns" => json!({"input": "hello"}),
            "context" => json!({"fence": self.fence, "limit": 10}),
            "events" => json!({"fence": self.fence, "events": [{"seq": 2, "kind": "worker.note"}]}),
            // Of an admission, whose fence its owner knows.
            "verify" => json!({"grant": "x", "resource": "pool/builtin"}),
            "renew" | "release" | "phase" if route.path.contains("admissions") => {
                json!({"fence": self.admission_fence})
            }
            "complete" | "release" => json!({"fence": self.fence}),
            "fail" => json!({"fence": self.fence, "code": "WORKER_FAILED", "retryable": false}),
            "effects" => {
                json!({"fence": self.fence, "callId": "call_1", "tool": "a/b", "idempotent": false,
                "argumentsDigest": format!("sha256:{}", "0".repeat(64))})
            }
            "{callId}" => json!({"fence": self.fence, "outcome": "done"}),
            "children" => {
                json!({"fence": self.fence, "key": "a", "capability": "chat", "input": "hello"})
            }
            "wait" => json!({"fence": self.fence, "children": {}}),
            "inputs" => json!({"text": "blue"}),
            "resolve" => json!({"verdict": "abandon"}),
            "state" => json!({"state": "suspended"}),
            _ => json!({}),
        }
    }
}

/// Whether an id of a tenant's thing stands in the path.
fn names_a_thing(route: &Route) -> bool {
    // Names of schedules are each tenant's own: whoever puts one makes its own.
    let schedule = route.path.starts_with("/v1/schedules/") && route.verb != Verb::Put;
    schedule
        || [
            "{runId}",
            "{conversationId}",
            "{keyId}",
            "{tenant}",
            "{admissionId}",
        ]
        .iter()
        .any(|parameter| route.path.contains(parameter))
}

async fn belongings(rig: &Rig, acme: &str) -> Belongings {
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let admin = rig.key(Role::TenantAdmin, "acme", "").await;
    let run = rig.submit(acme).await;
    let lease = rig.claim(&worker).await;
    assert_eq!(lease["run"]["runId"], run);
    let keys = rig.get("/v1/admin/keys", &admin).await.json();
    let nightly = json!({"cron": "@daily", "run": {"capability": "chat", "input": "hello"}});
    let made = rig
        .call("PUT", "/v1/schedules/nightly", acme, nightly)
        .await;
    assert_eq!(made.status, StatusCode::OK, "{made:?}");
    let coordinator = rig.key(Role::Coordinator, "acme", "").await;
    let id = AdmissionId::new().to_string();
    let body = json!({"admissionId": id, "requirements": {"capability": "chat"}});
    let admitted = rig.post("/v1/admissions", &coordinator, body).await;
    assert_eq!(admitted.status, StatusCode::CREATED, "{admitted:?}");
    Belongings {
        admission: id,
        admission_fence: admitted.json()["fence"].as_str().unwrap().to_owned(),
        conversation: rig.conversation(acme).await,
        run,
        fence: lease["fence"].as_str().unwrap().to_owned(),
        key: keys["items"][0]["keyId"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn every_route_answers_404_to_the_id_of_another_tenant() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    rig.tenant("globex").await;
    let theirs = belongings(&rig, &acme).await;
    let before = rig
        .get(&format!("/v1/runs/{}", theirs.run), &acme)
        .await
        .json();
    let mut walked = 0;
    for route in ROUTES.iter().filter(|route| names_a_thing(route)) {
        for role in route.access.roles() {
            // A super_admin is bound to no tenant and has no foreign ones.
            if *role == Role::SuperAdmin {
                continue;
            }
            let key = rig.key(*role, "globex", "elsewhere").await;
            let body = if route.verb.as_str() == "GET" {
                Value::Null
            } else {
                theirs.body(route)
            };
            let answer = rig
                .call(route.verb.as_str(), &theirs.path(route), &key, body)
                .await;
            let code = answer.problem().code;
            // To a worker of another pool, a run that it does not hold is a lease that it does not have (R4.2).
            let expected = if *role == Role::Worker {
                Code::LeaseLost
            } else {
                Code::NotFound
            };
            assert_eq!(code, expected, "{role} {route:?}");
            walked += 1;
        }
    }
    assert!(walked >= 20, "{walked}");
    let after = rig
        .get(&format!("/v1/runs/{}", theirs.run), &acme)
        .await
        .json();
    assert_eq!(before, after, "nothing was changed");
}

/// R2.4: the tenant is the key's; lists show nothing of others.
#[tokio::test]
async fn lists_and_bulk_actions_stay_within_the_tenant() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let globex = rig.tenant("globex").await;
    let run = rig.submit(&acme).await;
    let conversation = rig.conversation(&acme).await;
    assert_eq!(
        rig.get("/v1/runs", &globex).await.json()["items"],
        json!([])
    );
    let filter = format!("/v1/runs?conversationId={conversation}");
    assert_eq!(rig.get(&filter, &globex).await.json()["items"], json!([]));
    let listed = rig.get("/v1/conversations", &globex).await.json();
    assert_eq!(listed["items"], json!([]));
    let bulk = rig.post("/v1/runs:cancel", &globex, json!({})).await;
    assert_eq!(bulk.json(), json!({"changed": 0, "requested": 0}));
    let state = rig.get(&format!("/v1/runs/{run}"), &acme).await.json();
    assert_eq!(state["state"], "queued");
    let admin = rig.key(Role::TenantAdmin, "globex", "").await;
    for key in rig.get("/v1/admin/keys", &admin).await.json()["items"]
        .as_array()
        .unwrap()
    {
        assert_eq!(key["tenant"], "globex");
    }
    for entry in rig.get("/v1/admin/audit", &admin).await.json()["items"]
        .as_array()
        .unwrap()
    {
        assert_eq!(entry["tenant"], "globex");
    }
}

/// R2.4: a body or a query that names a tenant is refused, not obeyed and not ignored.
#[tokio::test]
async fn a_tenant_cannot_be_claimed() {
    let rig = Rig::new().await;
    rig.tenant("acme").await;
    let globex = rig.tenant("globex").await;
    let body = json!({"capability": "chat", "input": "hello", "tenant": "acme"});
    let answer = rig.post("/v1/runs", &globex, body).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.refusal(), "UNKNOWN_FIELD tenant");
    let answer = rig.get("/v1/runs?tenant=acme", &globex).await;
    assert_eq!(answer.refusal(), "UNKNOWN_FIELD tenant");
    let admin = rig.key(Role::TenantAdmin, "globex", "").await;
    let body = json!({"role": "member", "tenant": "acme"});
    let answer = rig.post("/v1/admin/keys", &admin, body).await;
    assert!(
        matches!(answer.problem().code, Code::Forbidden | Code::NotFound),
        "{answer:?}"
    );
}
