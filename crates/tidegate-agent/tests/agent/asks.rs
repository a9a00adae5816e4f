//! Turns that ask the person.

use chrono::DateTime;
use serde_json::json;
use tidegate_model::{
    ConversationId,
    api::{AnswerInput, InputView, MessageRole},
    run::AskKind,
};

use crate::{
    fake::message,
    rig::{rig, rig_with},
};

/// R3.15: a model asks, the turn parks with what it has said, and goes on with the answer as the tool's.
#[tokio::test]
async fn a_turn_asks_and_goes_on_with_the_answer() {
    let rig = rig().await;
    let conversation = ConversationId::new();
    let user = || message(1, MessageRole::User, json!({"text": "please paint it"}));
    let run_id = rig
        .server
        .submit(|run| run.conversation_id = Some(conversation));
    rig.server.set_messages(run_id, vec![user()]);
    let parked = rig.waited(run_id).await;
    let ask = parked.input.unwrap();
    assert_eq!(
        (ask.kind, ask.prompt.as_str()),
        (AskKind::Text, "Which colour?")
    );
    assert_eq!(ask.choices, ["red", "blue"]);
    assert!(parked.usage.tokens > 0);
    assert_eq!(
        parked.messages.len(),
        1,
        "the call; its answer is not there yet"
    );
    let call = parked.messages[0].content.clone();
    assert_eq!(call["toolCalls"][0]["callId"], json!(ask.call_id));

    let resumed = rig
        .server
        .submit(|run| run.conversation_id = Some(conversation));
    let stored = vec![user(), message(2, MessageRole::Assistant, call)];
    rig.server.set_messages(resumed, stored);
    let answer = AnswerInput {
        text: Some("blue".to_owned()),
        ..AnswerInput::default()
    };
    let input = InputView {
        ask_no: 1,
        ask,
        answer,
        answered_at: DateTime::UNIX_EPOCH,
        user: None,
    };
    rig.server.set_inputs(resumed, vec![input]);
    let done = rig.completed(resumed).await;
    assert_eq!(done.result["text"], "I paint it blue.");
    let roles: Vec<_> = done.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [MessageRole::Tool, MessageRole::Assistant]);
    assert_eq!(done.messages[0].content["text"], "blue");
    rig.end().await;
}

/// R3.15: only a turn asks, and only where the operator lets it.
#[tokio::test]
async fn who_has_nobody_to_ask_is_not_offered_it() {
    let task = rig().await;
    let run_id = task.ask("please paint it");
    assert_eq!(task.completed(run_id).await.messages.len(), 1);
    task.end().await;
    let off = rig_with(Vec::new(), |settings| settings.ask_user = false).await;
    let run_id = off
        .server
        .submit(|run| run.conversation_id = Some(ConversationId::new()));
    let text = json!({"text": "please paint it"});
    off.server
        .set_messages(run_id, vec![message(1, MessageRole::User, text)]);
    assert_eq!(off.completed(run_id).await.messages.len(), 1);
    off.end().await;
}
