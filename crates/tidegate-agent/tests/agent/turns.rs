//! Turns that come to an answer.

use std::time::Duration;

use serde_json::json;
use tidegate_agent::{ToolHost, limits::MOUNT_TIMEOUT, tools::ToolLimits};
use tidegate_llm::CallClass;
use tidegate_mock_provider::{MockProvider, Scenario};
use tidegate_model::{Code, ConversationId, api::MessageRole, event::EventKind, run::QuotaBucket};
use tokio::time::Instant;

use crate::{
    fake::{Fault, message},
    raw,
    rig::{rig, rig_at, rig_using, rig_with},
    support::{acme, spec},
};

/// R20.3: model, tool, model; streamed, numbered, with its messages and its use.
#[tokio::test]
async fn a_turn_calls_a_tool_and_answers() {
    let rig = rig_with(vec![spec("normal")], |settings| {
        "Be brief.".clone_into(&mut settings.system_prompt);
    })
    .await;
    let run_id = rig
        .server
        .submit(|run| run.conversation_id = Some(ConversationId::new()));
    rig.server.set_messages(
        run_id,
        vec![
            message(1, MessageRole::User, json!({"text": "earlier question"})),
            message(2, MessageRole::Assistant, json!({"text": "earlier answer"})),
            message(
                3,
                MessageRole::User,
                json!({"text": "what do my notes say?"}),
            ),
        ],
    );
    let done = rig.completed(run_id).await;
    assert_eq!(
        done.result["text"], "The note says: note of tides.",
        "{}",
        done.result
    );
    assert_eq!(done.result["steps"], 2);
    let roles: Vec<_> = done.messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [
            MessageRole::Assistant,
            MessageRole::Tool,
            MessageRole::Assistant
        ]
    );
    assert_eq!(
        done.messages[0].content["toolCalls"][0]["tool"],
        "notes/read_note"
    );
    assert_eq!(done.messages[1].content["text"], "note of tides");
    assert!(done.usage.tokens >= 35, "{:?}", done.usage);
    let asked = rig.mock.requests().remove(0);
    let roles: Vec<_> = asked["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].clone())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    rig.end().await;
}

/// R20.3, R20.1: the events of a turn tell what was said, asked and called, under the names that people read.
#[tokio::test]
async fn a_turn_is_told_in_events() {
    let rig = rig_with(vec![spec("normal")], |_| ()).await;
    let run_id = rig.ask("what do my notes say?");
    rig.completed(run_id).await;
    let streamed: String = rig
        .events(run_id, EventKind::MessageDelta)
        .iter()
        .filter_map(|body| body["text"].as_str())
        .collect();
    assert_eq!(streamed, "I look. The note says: note of tides.");
    assert_eq!(
        rig.events(run_id, EventKind::WorkerNote)[0]["tools"]["notes__read_note"],
        "notes/read_note"
    );
    let finished = rig.events(run_id, EventKind::ToolFinished);
    assert_eq!(
        (&finished[0]["tool"], &finished[0]["isError"]),
        (&json!("notes/read_note"), &json!(false))
    );
    assert_eq!(rig.events(run_id, EventKind::ModelCalled).len(), 2);
    rig.end().await;
}

/// O-21, R20.3: a call that must not be made is refused with its own code, to the model and in the run's events.
#[tokio::test]
async fn a_call_that_is_refused_has_its_code() {
    let provider = raw::RawProvider::start(vec![
        raw::tool_call("no_such_tool", "{}"),
        raw::text("I cannot."),
    ])
    .await;
    let mock = MockProvider::start(Scenario::default()).await.unwrap();
    let rig = rig_at(&provider.url, mock, vec![spec("normal")], |_| ());
    let run_id = rig.ask("do something");
    let done = rig.completed(run_id).await;
    assert_eq!(done.result["text"], "I cannot.");
    let finished = rig.events(run_id, EventKind::ToolFinished);
    assert_eq!(finished[0]["code"], "TOOL_UNAVAILABLE");
    rig.end().await;
}

/// R13.1: the class of a model call follows the run's bucket.
#[tokio::test]
async fn background_runs_wait_behind_foreground_ones() {
    let rig = rig().await;
    for bucket in [
        QuotaBucket::Background,
        QuotaBucket::Foreground,
        QuotaBucket::Uncounted,
    ] {
        let run_id = rig.server.submit(|run| run.quota_bucket = bucket);
        rig.completed(run_id).await;
    }
    let classes: Vec<_> = rig
        .records
        .lock()
        .unwrap()
        .iter()
        .map(|record| record.class)
        .collect();
    assert_eq!(
        classes,
        [
            CallClass::Background,
            CallClass::Foreground,
            CallClass::Foreground
        ]
    );
    rig.end().await;
}

#[tokio::test]
async fn an_empty_answer_is_no_success() {
    let provider = raw::RawProvider::start(vec![raw::text("")]).await;
    let mock = MockProvider::start(Scenario::default()).await.unwrap();
    let rig = rig_at(&provider.url, mock, Vec::new(), |_| ());
    let failed = rig.failed(rig.ask("hello")).await;
    assert_eq!(
        (failed.code, failed.retryable),
        (Code::ProviderFailed, true)
    );
    rig.end().await;
}

/// Answers of the platform that are lost are asked for again; a reader sees each event once.
#[tokio::test]
async fn a_flaky_server_changes_nothing() {
    let rig = rig_with(vec![spec("normal")], |_| ()).await;
    rig.server.fault(
        "events",
        [Fault::LoseAnswer, Fault::Refuse, Fault::LoseAnswer],
    );
    rig.server.fault("complete", [Fault::Refuse]);
    rig.server.fault("renew", [Fault::Refuse]);
    let run_id = rig.ask("what do my notes say?");
    let done = rig.completed(run_id).await;
    assert_eq!(done.result["text"], "The note says: note of tides.");
    assert_eq!(done.messages.len(), 3);
    let streamed: String = rig
        .events(run_id, EventKind::MessageDelta)
        .iter()
        .filter_map(|body| body["text"].as_str())
        .collect();
    assert_eq!(streamed, "I look. The note says: note of tides.");
    rig.end().await;
}

#[tokio::test]
async fn tenants_get_their_own_tools() {
    let mut notes = spec("normal");
    notes.tenants = Some(vec!["globex".parse().unwrap()]);
    let rig = rig_with(vec![notes], |_| ()).await;
    let done = rig.completed(rig.ask("what do my notes say?")).await;
    assert_eq!(
        done.result["text"],
        "Hello, how are you today?",
        "{} has no tools",
        acme()
    );
    assert!(
        rig.mock.requests()[0]["tools"]
            .as_array()
            .is_none_or(Vec::is_empty)
    );
    rig.end().await;
}

/// O-26: a tool server that hangs in its handshake delays no turn for long, and the run says that it did without.
#[tokio::test]
async fn a_hanging_server_is_said_and_not_waited_for() {
    let limits = ToolLimits {
        offer_wait: Duration::from_millis(300),
        ..ToolLimits::default()
    };
    let tools = ToolHost::new(limits);
    tools.configure(vec![spec("never")]);
    let rig = rig_using(tools).await;
    for _ in 0..2 {
        let asked = Instant::now();
        let run_id = rig.ask("hello");
        rig.completed(run_id).await;
        let took = asked.elapsed();
        assert!(took < MOUNT_TIMEOUT / 3, "{took:?}");
        let notes = rig.events(run_id, EventKind::WorkerNote);
        assert_eq!(
            notes,
            [json!({
                "note": "tools.unavailable",
                "code": "TOOL_UNAVAILABLE",
                "servers": [{"server": "notes", "phase": "starting"}],
            })]
        );
    }
    rig.end().await;
}
