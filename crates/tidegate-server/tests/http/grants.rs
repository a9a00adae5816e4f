//! R2.4: for whom a run is, and what it is granted, is not its caller's to say.

use serde_json::{Value, json};
use tidegate_model::{
    Code,
    principal::{KeyScope, Role},
};

use crate::rig::{Answer, Rig};

/// A key of acme as its administrators would ask for it.
async fn key(rig: &Rig, by: &str, fields: Value) -> Answer {
    let mut body = json!({"role": "member", "tenant": "acme", "scopes": ["runs:business"]});
    let given = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(given);
    rig.post("/v1/admin/keys", by, body).await
}

async fn secret(rig: &Rig, by: &str, fields: Value) -> String {
    let made = key(rig, by, fields).await;
    made.json()["secret"].as_str().expect(&made.body).to_owned()
}

/// A business task with these fields.
async fn submit(rig: &Rig, by: &str, fields: Value) -> Answer {
    let mut body = json!({"capability": "chat", "input": "hello"});
    let given = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(given);
    rig.post("/v1/runs", by, body).await
}

/// R2.4: the user is the key's; only a key with the scope names another, for runs, turns and conversations alike.
#[tokio::test]
async fn only_a_key_that_acts_for_users_names_one() {
    let rig = Rig::new().await;
    rig.tenant("acme").await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let ann = secret(&rig, &operator, json!({"user": "ann"})).await;
    let own = submit(&rig, &ann, json!({})).await.json();
    assert_eq!(own["user"], "ann");
    let run = format!("/v1/runs/{}", own["runId"].as_str().unwrap());
    assert_eq!(rig.get(&run, &ann).await.json()["user"], "ann");
    assert_eq!(
        submit(&rig, &ann, json!({"user": "ann"})).await.json()["user"],
        "ann"
    );
    let conversation = rig.conversation(&ann).await;
    let turns = format!("/v1/conversations/{conversation}/turns");
    for (path, body) in [
        (
            "/v1/runs",
            json!({"capability": "chat", "input": "hello", "user": "bob"}),
        ),
        ("/v1/conversations", json!({"user": "bob"})),
        (turns.as_str(), json!({"input": "hello", "user": "bob"})),
    ] {
        let refused = rig.post(path, &ann, body).await;
        assert_eq!(refused.problem().code, Code::Forbidden, "{path}");
        assert!(refused.problem().detail.unwrap().contains("act_for_users"));
    }
    let scopes = vec![KeyScope::RunsBusiness, KeyScope::ActForUsers];
    let backend = rig.key_with(Role::Member, "acme", "", scopes).await;
    assert_eq!(
        submit(&rig, &backend, json!({"user": "bob"})).await.json()["user"],
        "bob"
    );
    let none = submit(&rig, &backend, json!({})).await.json();
    assert_eq!(none.get("user"), None);
    let made = rig
        .post("/v1/conversations", &backend, json!({"user": "bob"}))
        .await;
    assert_eq!(made.json()["user"], "bob");
    let turn = rig
        .post(&turns, &backend, json!({"input": "hi", "user": "bob"}))
        .await;
    let turn = format!("/v1/runs/{}", turn.json()["runId"].as_str().unwrap());
    assert_eq!(rig.get(&turn, &ann).await.json()["user"], "bob");
    for bad in [String::new(), "u".repeat(201), "a\u{0}b".to_owned()] {
        let refused = submit(&rig, &backend, json!({"user": bad})).await;
        assert_eq!(refused.refusal(), "INVALID_ARGUMENT user");
    }
}

/// R2.4, R3.1: the same idempotency key for another user is another request.
#[tokio::test]
async fn a_key_is_not_repeated_across_users() {
    let rig = Rig::new().await;
    rig.tenant("acme").await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let ann = secret(&rig, &operator, json!({"user": "ann"})).await;
    let bob = secret(&rig, &operator, json!({"user": "bob"})).await;
    for path in ["/v1/runs", "/v1/conversations"] {
        let body = if path == "/v1/runs" {
            json!({"capability": "chat", "input": "hello"})
        } else {
            json!({})
        };
        let send = async |by: &str| {
            let request = rig.request("POST", path).bearer_auth(by).json(&body);
            crate::rig::answer(request.header("idempotency-key", path)).await
        };
        assert!(send(&ann).await.status.is_success());
        assert!(send(&ann).await.status.is_success());
        assert_eq!(
            send(&bob).await.problem().code,
            Code::IdempotencyConflict,
            "{path}"
        );
    }
}

/// R2.4: priority and service class are the grant of the key; a caller only lowers them.
#[tokio::test]
async fn a_caller_only_lowers_what_its_key_is_granted() {
    let rig = Rig::new().await;
    let plain = rig.tenant("acme").await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let told = async |by: &str, fields: Value| {
        let run = submit(&rig, by, fields).await.json();
        let id = format!("/v1/runs/{}", run["runId"].as_str().unwrap());
        let read = rig.get(&id, by).await.json();
        let shown = |run: &Value| {
            format!(
                "{} {} {}",
                run["priority"], run["prioritySource"], run["serviceClass"]
            )
        };
        assert_eq!(shown(&run), shown(&read));
        shown(&read).replace('"', "")
    };
    assert_eq!(told(&plain, json!({})).await, "0 default standard");
    assert_eq!(
        told(&plain, json!({"priority": -3})).await,
        "-3 caller standard"
    );
    let grants = json!({"grants": {"priority": 10, "serviceClass": "interactive"}});
    let urgent = secret(&rig, &operator, grants).await;
    assert_eq!(told(&urgent, json!({})).await, "10 key interactive");
    let lower = json!({"priority": 4, "serviceClass": "speculative"});
    assert_eq!(told(&urgent, lower).await, "4 caller speculative");
    let batch = secret(
        &rig,
        &operator,
        json!({"grants": {"serviceClass": "deferrable"}}),
    )
    .await;
    assert_eq!(told(&batch, json!({})).await, "0 default deferrable");
    for (by, fields, refusal) in [
        (&plain, json!({"priority": 1}), "INVALID_ARGUMENT priority"),
        (
            &urgent,
            json!({"priority": 11}),
            "INVALID_ARGUMENT priority",
        ),
        (
            &urgent,
            json!({"priority": -101}),
            "INVALID_ARGUMENT priority",
        ),
        (
            &batch,
            json!({"serviceClass": "standard"}),
            "INVALID_ARGUMENT serviceClass",
        ),
    ] {
        assert_eq!(submit(&rig, by, fields).await.refusal(), refusal);
    }
}

/// R2.4: what orders within a tenant its administrator gives; what decides between tenants only the operator.
#[tokio::test]
async fn a_grant_is_given_by_whom_it_concerns() {
    let rig = Rig::new().await;
    rig.tenant("acme").await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let admin = rig.key(Role::TenantAdmin, "acme", "").await;
    let made = key(&rig, &admin, json!({"grants": {"priority": 5}})).await;
    assert_eq!(made.json()["key"]["grants"], json!({"priority": 5}));
    let refused = key(
        &rig,
        &admin,
        json!({"grants": {"serviceClass": "deferrable"}}),
    )
    .await;
    assert_eq!(refused.problem().code, Code::Forbidden);
    for (fields, refusal) in [
        (
            json!({"grants": {"priority": 101}}),
            "INVALID_ARGUMENT grants.priority",
        ),
        (
            json!({"grants": {"weight": 2}}),
            "UNKNOWN_FIELD grants.weight",
        ),
        (
            json!({"role": "pool_controller", "tenant": null, "grants": {"priority": 1}}),
            "INVALID_ARGUMENT grants",
        ),
    ] {
        assert_eq!(key(&rig, &operator, fields).await.refusal(), refusal);
    }
}
