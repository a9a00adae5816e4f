//! `askUser`: the one tool that is ours. A model that calls it asks the person of the conversation; the turn parks, and
//! the answer comes back as the tool's (R3.15).
//!
//! Offered to turns only: what a turn has said so far is kept in its conversation, and its next attempt goes on from
//! there. A run without a conversation would begin from nothing and ask again.

use serde_json::{Value, json};
use tidegate_llm::{Message, ToolCall, ToolSpec};
use tidegate_model::{
    api::{Ask, ContextAnswer, InputView, MessageRole},
    limits,
    run::AskKind,
};

/// The name that models see; names of tool servers' tools hold `__`, so that none is the same.
pub(crate) const ASK_USER: &str = "askUser";

/// What a model is shown.
pub(crate) fn spec() -> ToolSpec {
    ToolSpec {
        name: ASK_USER.to_owned(),
        description: "Ask the person you talk with, and wait for the answer. Use it when you cannot go on without \
                      knowing something that only they know, or before something that needs their consent. One question \
                      at a time."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "question": {"type": "string", "description": "What to ask, complete in itself."},
                "kind": {
                    "type": "string",
                    "enum": ["text", "confirmation", "file"],
                    "description": "text (default), confirmation (yes or no), or file (a reference to a file)."
                },
                "choices": {
                    "type": "array", "items": {"type": "string"},
                    "description": "For text: the answer must be one of these."
                }
            },
            "required": ["question"],
            "additionalProperties": false
        }),
    }
}

/// The question that a call asks, or what is wrong with the call.
pub(crate) fn question(call: &ToolCall) -> Result<Ask, String> {
    let arguments: Value = serde_json::from_str(&call.arguments)
        .map_err(|_| "the arguments are not JSON".to_owned())?;
    let prompt = arguments["question"].as_str().unwrap_or_default();
    let kind = match arguments["kind"].as_str() {
        None => AskKind::Text,
        Some(kind) => kind
            .parse()
            .map_err(|_| "kind is one of text, confirmation, file".to_owned())?,
    };
    let choices = arguments["choices"].as_array().into_iter().flatten();
    let choices = choices.filter_map(Value::as_str);
    let choices: Vec<String> = match kind {
        AskKind::Text => choices
            .filter(|choice| !choice.is_empty())
            .map(|choice| choice.chars().take(200).collect())
            .take(limits::ASK_CHOICES_MAX)
            .collect(),
        AskKind::Confirmation | AskKind::File => Vec::new(),
    };
    if prompt.trim().is_empty() {
        return Err("question is missing".to_owned());
    }
    Ok(Ask {
        kind,
        prompt: prompt.chars().take(limits::ASK_PROMPT_MAX_CHARS).collect(),
        choices,
        call_id: (call.id.len() <= 200).then(|| call.id.clone()),
    })
}

/// An answer as a model reads it.
fn told(input: &InputView) -> String {
    let answer = &input.answer;
    match (&answer.text, answer.confirmed, &answer.file) {
        (Some(text), ..) => text.clone(),
        (None, Some(true), _) => "yes".to_owned(),
        (None, Some(false), _) => "no".to_owned(),
        (None, None, Some(file)) => serde_json::to_string(file).unwrap_or_default(),
        (None, None, None) => String::new(),
    }
}

/// The answer to the question on which the turn parked, where neither the conversation nor what an earlier attempt left
/// holds it yet: the call's id and what the person said.
pub(crate) fn answer(left: &ContextAnswer) -> Option<(String, String)> {
    let stored = &left.messages;
    let last = stored
        .iter()
        .rposition(|message| message.role == MessageRole::Assistant)?;
    let answered = |id: &str| {
        stored[last..]
            .iter()
            .any(|message| message.content["callId"] == id)
            || left
                .earlier
                .iter()
                .any(|message| message.content["callId"] == id)
    };
    let calls = stored[last].content["toolCalls"].as_array()?;
    let open = calls
        .iter()
        .filter(|call| call["name"] == ASK_USER)
        .filter_map(|call| call["callId"].as_str())
        .find(|id| !answered(id))?;
    let input = left
        .inputs
        .iter()
        .rfind(|input| input.ask.call_id.as_deref() == Some(open))?;
    Some((open.to_owned(), told(input)))
}

/// What a model is told of an answer.
pub(crate) fn message(call_id: &str, text: &str) -> Message {
    Message::Tool {
        call_id: call_id.to_owned(),
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &Value) -> ToolCall {
        ToolCall {
            id: "c1".to_owned(),
            name: ASK_USER.to_owned(),
            arguments: arguments.to_string(),
        }
    }

    #[test]
    fn a_call_becomes_a_question() {
        let ask = question(&call(
            &json!({"question": "Which?", "choices": ["a", "", "b"]}),
        ))
        .unwrap();
        assert_eq!((ask.kind, ask.choices.len()), (AskKind::Text, 2));
        assert_eq!(ask.call_id.as_deref(), Some("c1"));
        let ask = question(&call(
            &json!({"question": "Sure?", "kind": "confirmation", "choices": ["x"]}),
        ));
        assert!(ask.unwrap().choices.is_empty());
        for bad in [
            json!({}),
            json!({"question": " "}),
            json!({"question": "x", "kind": "song"}),
        ] {
            assert!(question(&call(&bad)).is_err());
        }
    }
}
