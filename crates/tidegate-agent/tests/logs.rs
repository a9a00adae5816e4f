//! What the executor logs. A binary of its own: a subscriber is seen by all threads of a process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

#[path = "../../tidegate-client/tests/fake/mod.rs"]
mod fake;
#[path = "agent/rig.rs"]
#[expect(
    dead_code,
    reason = "the rig of the agent's tests; a part of it is enough here"
)]
mod rig;
mod support;

use std::sync::{Arc, Mutex};

use rig::rig_with;
use support::spec;

/// R21.3: what people, models and tools say to each other is in no log, at any level.
#[tokio::test]
async fn contents_never_reach_a_log() {
    let log = Log::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("trace,rmcp=off")
        .with_writer(move || sink.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = rig_with(vec![spec("normal")], |_| ()).await;
    let done = rig
        .completed(rig.ask("canary-question: what do my notes say?"))
        .await;
    assert_eq!(done.result["text"], "The note says: note of tides.");
    rig.failed(rig.ask("canary-question: cut")).await;
    rig.failed(rig.ask("canary-question: go on forever")).await;
    rig.end().await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        text.contains("tool called") && text.contains("attempt failed"),
        "logs are written"
    );
    for said in [
        "canary-question",
        "note of tides",
        "The note says",
        "breaks off somewhere",
    ] {
        let line = text.lines().find(|line| line.contains(said));
        assert_eq!(line, None, "{said}");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
