//! R3.7: a tenant's conversations, found again.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::principal::Role;

use crate::rig::{Rig, answer};

/// R3.7: newest first, in pages that join without gap or overlap; one is shown as it was answered when it began.
#[tokio::test]
async fn conversations_are_listed_newest_first() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let mut begun = Vec::new();
    for title in ["one", "two", "three"] {
        let body = json!({"title": title, "user": null});
        begun.push(rig.post("/v1/conversations", &acme, body).await.json());
    }
    begun.reverse();
    let mut listed: Vec<Value> = Vec::new();
    let mut path = "/v1/conversations?limit=2".to_owned();
    loop {
        let page = rig.get(&path, &acme).await.json();
        listed.extend(page["items"].as_array().unwrap().clone());
        let Some(cursor) = page["nextCursor"].as_str() else {
            break;
        };
        path = format!("/v1/conversations?limit=2&cursor={cursor}");
    }
    assert_eq!(listed, begun);
    let id = begun[1]["conversationId"].as_str().unwrap();
    let one = rig.get(&format!("/v1/conversations/{id}"), &acme).await;
    assert_eq!(one.json(), begun[1]);
    let bad = rig.get("/v1/conversations?cursor=x", &acme).await;
    assert_eq!(bad.refusal(), "INVALID_ARGUMENT cursor");
}

/// R3.7, R3.1: a conversation that is begun with a turn has it, and one whose turn is refused is not begun; sent again, both
/// are the same.
#[tokio::test]
async fn a_conversation_is_begun_with_its_turn_or_not_at_all() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let past = "2020-01-01T00:00:00Z";
    for (turn, refusal) in [
        (json!({"input": ""}), "INVALID_ARGUMENT turn.input"),
        (
            json!({"input": "hi", "deadline": past}),
            "INVALID_ARGUMENT turn.deadline",
        ),
        (
            json!({"input": "hi", "user": ""}),
            "INVALID_ARGUMENT turn.user",
        ),
        (
            json!({"input": "hi", "kind": "child"}),
            "UNKNOWN_FIELD turn.kind",
        ),
    ] {
        let answer = rig
            .post("/v1/conversations", &acme, json!({"turn": turn}))
            .await;
        assert_eq!(answer.refusal(), refusal);
    }
    for list in ["/v1/conversations", "/v1/runs"] {
        assert_eq!(rig.get(list, &acme).await.json()["items"], json!([]));
    }
    let begin = || {
        let body = json!({"title": "Sales", "turn": {"input": "hello"}});
        let request = rig.request("POST", "/v1/conversations").bearer_auth(&acme);
        answer(request.header("idempotency-key", "k1").json(&body))
    };
    let (first, again) = (begin().await, begin().await);
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    assert_eq!(first.json(), again.json());
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let (made, turn) = (first.json(), first.json()["turn"].clone());
    let conversation = made["conversationId"].as_str().unwrap();
    let shown = rig
        .get(&format!("/v1/conversations/{conversation}"), &acme)
        .await;
    assert_eq!(shown.json()["title"], "Sales");
    let path = format!("/v1/conversations/{conversation}/messages");
    let messages = rig.get(&path, &acme).await.json();
    assert_eq!(messages["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(messages["items"][0]["runId"], turn["runId"]);
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let lease = rig.claim(&worker).await;
    assert_eq!(lease["run"]["runId"], turn["runId"]);
    assert_eq!(lease["run"]["kind"], "conversation_turn");
}
