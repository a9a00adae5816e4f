//! R15.1: what a tenant may have: override, else tier, else built in; with the optional tables and without.

use serde_json::{Value, json};
use tidegate_model::{Code, principal::Role};

use crate::rig::{Rig, claim_body};

const OVERRIDE: &str = "/v1/admin/tenants/acme/override";

/// `value source` of a limit.
async fn limit(rig: &Rig, key: &str, name: &str) -> String {
    let shown = rig.get("/v1/me/limits", key).await.json();
    let limits = shown["limits"].as_array().unwrap();
    let limit = limits.iter().find(|limit| limit["name"] == name).unwrap();
    format!("{} {}", limit["value"], limit["source"].as_str().unwrap())
}

/// Submits turns, each in a conversation of its own, and claims all that may start.
async fn started(rig: &Rig, key: &str, worker: &str) -> usize {
    for _ in 0..5 {
        let conversation = rig.conversation(key).await;
        let path = format!("/v1/conversations/{conversation}/turns");
        let turn = rig.post(&path, key, json!({"input": "hello"})).await;
        assert!(turn.status.is_success(), "{turn:?}");
    }
    let mut leases = 0;
    // A claim takes from one lane as much as it sees free; the last one finds nothing more.
    loop {
        let mut body = claim_body(200);
        body["max"] = json!(20);
        let claimed = rig.post("/v1/worker/claim", worker, body).await.json();
        match claimed["leases"].as_array().unwrap().len() {
            0 => return leases,
            more => leases += more,
        }
    }
}

/// R15.1, R3.3: without the tables everybody has the built-in tier standard, and no override can be given.
#[tokio::test]
async fn without_the_tables_the_built_in_tier_serves() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    assert_eq!(
        limit(&rig, &acme, "foregroundRunsMax").await,
        "2 built-in tier standard"
    );
    assert_eq!(
        limit(&rig, &acme, "backgroundRunsMax").await,
        "1 built-in tier standard"
    );
    assert_eq!(
        limit(&rig, &acme, "weight").await,
        "1 built-in tier standard"
    );
    let refused = rig
        .call("PUT", OVERRIDE, &operator, json!({"tier": "plus"}))
        .await;
    assert_eq!(refused.problem().code, Code::StateConflict);
    assert!(refused.problem().detail.unwrap().contains("migrate --with"));
    assert_eq!(started(&rig, &acme, &worker).await, 2);
}

/// R15.1, R15.2: an override wins over the tier and the tier over what is built in, value by value; claims keep it at
/// once, and limits and usage show it.
#[tokio::test]
async fn the_tables_decide_what_a_claim_gives() {
    let rig = Rig::new().await;
    rig.with_tiers().await;
    let (acme, globex) = (rig.tenant("acme").await, rig.tenant("globex").await);
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    assert_eq!(
        limit(&rig, &acme, "foregroundRunsMax").await,
        "2 tier standard"
    );
    let own = json!({"tier": "plus", "backgroundRunsMax": 64, "weight": 5});
    let answer = rig.call("PUT", OVERRIDE, &operator, own).await;
    assert!(answer.status.is_success(), "{answer:?}");
    assert_eq!(limit(&rig, &acme, "foregroundRunsMax").await, "4 tier plus");
    assert_eq!(
        limit(&rig, &acme, "backgroundRunsMax").await,
        "64 tenant override"
    );
    assert_eq!(limit(&rig, &acme, "weight").await, "5 tenant override");
    assert_eq!(
        limit(&rig, &globex, "foregroundRunsMax").await,
        "2 tier standard"
    );
    assert_eq!(started(&rig, &acme, &worker).await, 4);
    assert_eq!(started(&rig, &globex, &worker).await, 2);
    let usage = rig.get("/v1/me/usage", &acme).await.json();
    let caps: Vec<&Value> = usage["buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| &bucket["cap"])
        .collect();
    assert!(
        caps.contains(&&json!(4)) && caps.contains(&&json!(64)),
        "{usage}"
    );
    // A raised cap lets the rest start.
    rig.call("PUT", OVERRIDE, &operator, json!({"foregroundRunsMax": 5}))
        .await;
    let mut body = claim_body(5_000);
    body["max"] = json!(20);
    let more = rig.post("/v1/worker/claim", &worker, body).await.json();
    assert_eq!(more["leases"].as_array().unwrap().len(), 1);
    let revisions = rig.get("/v1/admin/revisions", &operator).await.json();
    let kinds = revisions["items"].as_array().unwrap().iter();
    assert_eq!(
        kinds.filter(|revision| revision["kind"] == "tier").count(),
        2
    );
}

/// R2.3, R15.1: only the platform's operator gives tiers; values out of bounds and unknown names are refused by field.
#[tokio::test]
async fn an_override_is_checked_and_goes_with_its_tenant() {
    let rig = Rig::new().await;
    rig.with_tiers().await;
    rig.tenant("acme").await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let admin = rig.key(Role::TenantAdmin, "acme", "").await;
    let refused = rig
        .call("PUT", OVERRIDE, &admin, json!({"weight": 9}))
        .await;
    assert_eq!(refused.problem().code, Code::Forbidden);
    for (body, refusal) in [
        (
            json!({"backgroundRunsMax": 65}),
            "INVALID_ARGUMENT backgroundRunsMax",
        ),
        (
            json!({"foregroundRunsMax": 0}),
            "INVALID_ARGUMENT foregroundRunsMax",
        ),
        (json!({"weight": 1001}), "INVALID_ARGUMENT weight"),
        (json!({"tier": "gold"}), "INVALID_ARGUMENT tier"),
        (json!({"rpm": 1}), "UNKNOWN_FIELD rpm"),
        (json!({}), "INVALID_ARGUMENT"),
        (json!({"tier": null, "weight": null}), "INVALID_ARGUMENT"),
    ] {
        let answer = rig.call("PUT", OVERRIDE, &operator, body).await;
        assert_eq!(answer.refusal(), refusal);
    }
    let nobody = "/v1/admin/tenants/nobody/override";
    let answer = rig
        .call("PUT", nobody, &operator, json!({"weight": 2}))
        .await;
    assert_eq!(answer.problem().code, Code::NotFound);
    rig.call("PUT", OVERRIDE, &operator, json!({"weight": 2}))
        .await;
    let gone = json!({"state": "deleted"});
    let deleted = rig
        .post("/v1/admin/tenants/acme/state", &operator, gone)
        .await;
    assert!(deleted.status.is_success(), "{deleted:?}");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM tenant_resource_overrides")
        .fetch_one(rig.db.pool())
        .await
        .unwrap();
    assert_eq!(left, 0);
}

/// Bad input: an override without a value takes nothing away; only the call that says so does (R15.1).
#[tokio::test]
async fn an_override_goes_only_when_asked_to() {
    let rig = Rig::new().await;
    rig.with_tiers().await;
    let acme = rig.tenant("acme").await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let own = json!({"tier": "plus", "weight": 5});
    rig.call("PUT", OVERRIDE, &operator, own).await;
    let refused = rig.call("PUT", OVERRIDE, &operator, json!({})).await;
    let detail = refused.problem().detail.unwrap();
    for named in ["tier", "foregroundRunsMax", "weight", "DELETE"] {
        assert!(detail.contains(named), "{detail}");
    }
    assert_eq!(limit(&rig, &acme, "weight").await, "5 tenant override");
    let gone = rig.call("DELETE", OVERRIDE, &operator, Value::Null).await;
    assert_eq!(gone.status, 204, "{gone:?}");
    assert_eq!(limit(&rig, &acme, "weight").await, "1 tier standard");
    assert_eq!(
        limit(&rig, &acme, "foregroundRunsMax").await,
        "2 tier standard"
    );
    let again = rig.call("DELETE", OVERRIDE, &operator, Value::Null).await;
    assert_eq!(again.problem().code, Code::NotFound);
}
