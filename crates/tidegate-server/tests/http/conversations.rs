//! R3.7: a tenant's conversations, found again.

use serde_json::{Value, json};

use crate::rig::Rig;

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
