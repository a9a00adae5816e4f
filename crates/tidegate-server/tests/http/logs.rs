//! R21.3, R1.8: logs have ids and no contents.

use std::{
    io,
    sync::{Arc, Mutex},
};

use serde_json::json;
use tidegate_model::principal::Role;
use tracing_subscriber::fmt::MakeWriter;

use crate::rig::{Rig, answer};

/// Where the log of a test goes.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Captured {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

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
    let captured = Captured::default();
    // The whole server runs on this test's thread, so its log is all that is caught.
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_ansi(false)
        .with_writer(captured.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let root = rig.key(Role::SuperAdmin, "", "").await;
    say_it_everywhere(&rig, &acme, &root).await;
    for path in ["/v1/admin/providers", "/v1/admin/audit"] {
        assert!(!rig.get(path, &root).await.body.contains(CANARY), "{path}");
    }
    let log = captured.text();
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
