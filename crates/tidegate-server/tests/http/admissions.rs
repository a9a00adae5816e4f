//! The admissions API as a coordinator meets it (R7, R10).

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{AdmissionId, principal::Role};

use crate::rig::Rig;

struct World {
    rig: Rig,
    operator: String,
    coordinator: String,
}

impl World {
    async fn new() -> Self {
        let rig = Rig::new().await;
        rig.tenant("acme").await;
        Self {
            operator: rig.key(Role::SuperAdmin, "", "").await,
            coordinator: rig.key(Role::Coordinator, "acme", "").await,
            rig,
        }
    }

    async fn bound(&self, name: &str, capacity: i64) {
        let path = format!("/v1/admin/resources/{}", name.replace('/', "%2F"));
        let body = json!({"capacity": capacity});
        let answer = self.rig.call("PUT", &path, &self.operator, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }

    async fn post(&self, path: &str, body: Value) -> crate::rig::Answer {
        self.rig.post(path, &self.coordinator, body).await
    }

    async fn admit(&self, requirements: Value) -> crate::rig::Answer {
        let id = AdmissionId::new();
        let body = json!({"admissionId": id, "requirements": requirements});
        self.post("/v1/admissions", body).await
    }
}

/// R7.3, R7.7: a coordinator is answered at once, admitted or refused with what is short and when to try again.
#[tokio::test]
async fn a_coordinator_is_answered_at_once() {
    let world = World::new().await;
    world.bound("pool/builtin", 1).await;
    world.bound("tenant/acme/tokens", 50).await;
    let first = json!({"capability": "chat", "estimates": {"tokens": 5}});
    let first = world.admit(first).await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    let view = first.json();
    assert_eq!(view["state"], "ACTIVE");
    assert_eq!(view["grants"][0]["resource"], "pool/builtin");
    let refused = world.admit(json!({"capability": "chat"})).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    assert_eq!(refused.json()["reasons"].as_array().unwrap().len(), 1);

    let path = format!("/v1/admissions/{}", view["admissionId"].as_str().unwrap());
    let renewed = world
        .post(&format!("{path}/renew"), json!({"fence": view["fence"]}))
        .await;
    assert_eq!(renewed.status, StatusCode::OK, "{renewed:?}");
    let grant = &view["grants"][1]["grantId"];
    let phase = json!({"fence": view["fence"], "settle": [{"grantId": grant, "amount": 1}]});
    let settled = world.post(&format!("{path}/phase"), phase).await;
    assert_eq!(settled.json()["grants"][1]["settled"], 1, "{settled:?}");
    let released = world
        .post(&format!("{path}/release"), json!({"fence": view["fence"]}))
        .await;
    assert_eq!(released.json()["state"], "RELEASED", "{released:?}");
    let again = world
        .post(&format!("{path}/release"), json!({"fence": view["fence"]}))
        .await;
    assert_eq!(again.refusal(), "ADMISSION_ENDED");
    let ledger = world
        .rig
        .get("/v1/admin/ledger", &world.operator)
        .await
        .json();
    assert_eq!(
        (&ledger["balanced"], &ledger["holders"]),
        (&json!(true), &json!(0))
    );
}

/// R6.5: an explanation names each pool, what blocks it and the smallest change.
#[tokio::test]
async fn an_explanation_says_what_would_admit() {
    let world = World::new().await;
    let wanted = json!({"requirements": {"capability": "chat", "sandbox": "vm"}});
    let answer = world.post("/v1/admissions/explain", wanted).await.json();
    assert_eq!(answer["admits"], false);
    assert_eq!(answer["code"], "UNSATISFIABLE");
    assert_eq!(answer["nearest"], "builtin");
    assert_eq!(answer["pools"][0]["blockedBy"], json!(["SANDBOX_TOO_WEAK"]));
    assert!(answer["remedy"].as_str().unwrap().contains("sandbox"));
}

/// Bad input: unknown fields at any depth, ids and names of other kinds, and amounts that are none.
#[tokio::test]
async fn what_is_no_admission_is_refused() {
    let world = World::new().await;
    let id = AdmissionId::new();
    let asked = |requirements: Value| json!({"admissionId": id, "requirements": requirements});
    for (body, refusal) in [
        (
            json!({"admissionId": "adm_1", "requirements": {"capability": "chat"}}),
            "INVALID_ARGUMENT admissionId",
        ),
        (
            json!({"admissionId": id, "requirements": {"capability": "chat"}, "tenant": "globex"}),
            "UNKNOWN_FIELD tenant",
        ),
        (
            asked(json!({"capability": "chat", "gpu": 1})),
            "UNKNOWN_FIELD requirements.gpu",
        ),
        (
            asked(json!({"capability": "chat", "estimates": {"cpu": 1}})),
            "UNKNOWN_FIELD requirements.estimates.cpu",
        ),
        (
            asked(json!({"capability": "chat", "resources": [{"resource": "gpu/1", "amount": 1}]})),
            "INVALID_ARGUMENT requirements.resources[0].resource",
        ),
        (
            asked(json!({"capability": "chat", "estimates": {"tokens": 1.5}})),
            "INVALID_ARGUMENT requirements.estimates.tokens",
        ),
        (asked(json!({})), "INVALID_ARGUMENT requirements.capability"),
    ] {
        let answer = world.post("/v1/admissions", body.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(answer.refusal(), refusal, "{body}");
    }
    for name in ["pool", "gpu%2F1", "tenant%2Facme%2Fmoney"] {
        let path = format!("/v1/admin/resources/{name}");
        let answer = world
            .rig
            .call("PUT", &path, &world.operator, json!({"capacity": 1}))
            .await;
        assert_eq!(answer.refusal(), "INVALID_ARGUMENT resource", "{name}");
    }
}
