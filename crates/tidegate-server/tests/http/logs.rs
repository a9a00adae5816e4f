//! R21.3, R1.8: logs have ids and no contents.

use serde_json::json;
use tidegate_model::principal::Role;
use tidegate_testkit::log;

use crate::rig::{Rig, answer};

const CANARY: &str = "canary-5f1d";

/// Puts the canary wherever a client or an operator may put something.
async fn say_it_everywhere(rig: &Rig, member: &str, root: &str) {
    let conversation = rig.conversation(member).await;
    let turn = format!("/v1/conversations/{conversation}/turns");
    let asked = rig.request("POST", &turn).bearer_auth(member);
    let asked = asked.header("x-request-id", "req-of-a-turn");
    answer(asked.json(&json!({"input": CANARY}))).await;
    let inputs = [
        json!({"capability": "chat", "input": {"a": CANARY}}),
        json!({"capability": CANARY, "input": 1, CANARY: 2}),
    ];
    for input in inputs {
        rig.post("/v1/runs", member, input).await;
    }
    rig.get(&format!("/v1/runs?cursor={CANARY}"), member).await;
    rig.get("/v1/me", &format!("tg_{CANARY}")).await;
    let provider = json!({
        "kind": "openai_compatible",
        "baseUrl": "http://127.0.0.1:9/v1",
        "apiKey": CANARY,
    });
    let put = rig
        .call("PUT", "/v1/admin/providers/p", root, provider)
        .await;
    assert!(put.status.is_success(), "{put:?}");
}

/// R21.3, O-25: ids are in the log, contents and secrets are not.
#[tokio::test]
async fn logs_name_requests_and_hold_nothing_of_their_contents() {
    // The whole server runs on this test's thread, so its log is all that is caught.
    log::catch();
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let root = rig.key(Role::SuperAdmin, "", "").await;
    say_it_everywhere(&rig, &acme, &root).await;
    for path in ["/v1/admin/providers", "/v1/admin/audit"] {
        assert!(!rig.get(path, &root).await.body.contains(CANARY), "{path}");
    }
    let log = log::text();
    let of_the_turn =
        |line: &&str| line.contains("req-of-a-turn") && line.contains("tidegate::access");
    let line = log.lines().find(of_the_turn);
    let line = line.unwrap_or_else(|| panic!("no line for the turn in:\n{log}"));
    let parts = [
        "tenant_id=\"acme\"",
        "status=\"202\"",
        "/v1/conversations/{conversationId}/turns",
        "key_id=",
    ];
    for part in parts {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!log.contains(CANARY), "a content is in the log");
    assert!(
        !log.contains(&acme) && !log.contains(&root),
        "a key is in the log"
    );
}
