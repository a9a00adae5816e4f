//! Messages as the platform stores them and as models take them.
//!
//! Stored: `{text}`; of an assistant that calls tools `{text, toolCalls: [{callId, tool, name, arguments}]}`; of a tool
//! `{callId, text, isError}`.

use std::collections::HashSet;

use serde_json::{Value, json};
use tidegate_client::worker::Job;
use tidegate_llm::{Message, ToolCall};
use tidegate_model::{
    api::{MessageRole, MessageView, NewMessage},
    prompt::{NoPrompt, prompt},
};

use crate::tools::Offer;

/// What a model is asked first: the operator's instructions, then the conversation, or what was submitted.
pub(crate) fn opening(
    system: &str,
    stored: &[MessageView],
    job: &Job,
) -> Result<Vec<Message>, NoPrompt> {
    let mut messages = Vec::with_capacity(stored.len() + 1);
    if !system.trim().is_empty() {
        messages.push(Message::System(system.to_owned()));
    }
    if stored.is_empty() {
        let asked = prompt(&job.run().input)?;
        messages.push(Message::User(asked.into_owned()));
    } else {
        messages.extend(stored.iter().filter_map(from_stored));
    }
    Ok(complete_calls(messages))
}

fn text_of(content: &Value) -> String {
    let text = content.as_str().or_else(|| content["text"].as_str());
    text.unwrap_or_default().to_owned()
}

fn from_stored(message: &MessageView) -> Option<Message> {
    read_message(message.role, &message.content)
}

/// A stored message as models take it; nothing where it is none of ours.
pub(crate) fn read_message(role: MessageRole, content: &Value) -> Option<Message> {
    let text = text_of(content);
    Some(match role {
        MessageRole::User => Message::User(text),
        MessageRole::System => Message::System(text),
        MessageRole::Tool => Message::Tool {
            call_id: content["callId"].as_str()?.to_owned(),
            text,
        },
        MessageRole::Assistant => {
            let calls = content["toolCalls"].as_array().into_iter().flatten();
            let calls = calls.filter_map(|call| {
                Some(ToolCall {
                    id: call["callId"].as_str()?.to_owned(),
                    name: call["name"].as_str()?.to_owned(),
                    arguments: call["arguments"].as_str()?.to_owned(),
                })
            });
            Message::Assistant {
                text,
                tool_calls: calls.collect(),
            }
        }
    })
}

/// Providers refuse an answer without its call and a call without its answer. The window of a long conversation may cut
/// between them, and a turn that was cancelled while it asked leaves its question open.
///
/// Answers stand right behind the message that calls. They are looked for there and nowhere else: models name their calls
/// alike in every turn, so that another turn's answer has the same id.
fn complete_calls(messages: Vec<Message>) -> Vec<Message> {
    let mut kept = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        let Message::Assistant {
            text,
            mut tool_calls,
        } = message
        else {
            // Of an answer nobody asked for, nothing is left.
            if !matches!(message, Message::Tool { .. }) {
                kept.push(message);
            }
            continue;
        };
        let mut open: HashSet<String> = tool_calls.iter().map(|call| call.id.clone()).collect();
        let mut answers = Vec::new();
        while let Some(answer) = messages.next_if(|next| matches!(next, Message::Tool { .. })) {
            if let Message::Tool { call_id, .. } = &answer
                && open.remove(call_id)
            {
                answers.push(answer);
            }
        }
        tool_calls.retain(|call| !open.contains(&call.id));
        if !(text.is_empty() && tool_calls.is_empty()) {
            kept.push(Message::Assistant { text, tool_calls });
        }
        kept.extend(answers);
    }
    kept
}

/// An assistant's message as it is stored.
pub(crate) fn stored_assistant(text: &str, calls: &[ToolCall], offer: &Offer) -> NewMessage {
    let mut content = json!({ "text": text });
    if !calls.is_empty() {
        let calls = calls.iter().map(|call| {
            json!({
                "callId": call.id,
                "tool": offer.canonical(&call.name),
                "name": call.name,
                "arguments": call.arguments,
            })
        });
        content["toolCalls"] = calls.collect();
    }
    NewMessage {
        role: MessageRole::Assistant,
        content,
    }
}

/// A tool's answer as it is stored.
pub(crate) fn stored_tool(call_id: &str, text: &str, is_error: bool) -> NewMessage {
    NewMessage {
        role: MessageRole::Tool,
        content: json!({ "callId": call_id, "text": text, "isError": is_error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall {
            id: id.to_owned(),
            name: "files__read".to_owned(),
            arguments: "{}".to_owned(),
        }
    }

    fn assistant(text: &str, ids: &[&str]) -> Message {
        Message::Assistant {
            text: text.to_owned(),
            tool_calls: ids.iter().map(|id| call(id)).collect(),
        }
    }

    fn tool(id: &str) -> Message {
        Message::Tool {
            call_id: id.to_owned(),
            text: "answer".to_owned(),
        }
    }

    #[test]
    fn a_window_that_cuts_between_call_and_answer_is_repaired() {
        let user = || Message::User("hi".to_owned());
        let repaired = complete_calls(vec![
            tool("lost"),
            assistant("", &["unanswered"]),
            user(),
            assistant("let me look", &["a", "b"]),
            tool("a"),
            assistant("done", &[]),
            tool("a"),
        ]);
        let expected = vec![
            user(),
            assistant("let me look", &["a"]),
            tool("a"),
            assistant("done", &[]),
        ];
        assert_eq!(repaired, expected);
    }

    /// R3.7, R3.15: a question that its turn left open is dropped, whatever other turns answered under the same id, before
    /// it or after it.
    #[test]
    fn an_open_call_is_not_answered_by_another_turn() {
        let user = || Message::User("hi".to_owned());
        let answered = || [user(), assistant("", &["call_A"]), tool("call_A")];
        let said = || assistant("done", &[]);
        let open = || [user(), assistant("", &["call_A"])];
        let orders = [
            [&answered()[..], &[said()], &open()].concat(),
            [&open()[..], &answered(), &[said()]].concat(),
            [&open()[..], &open(), &answered(), &[said()], &open()].concat(),
        ];
        for mut messages in orders {
            messages.push(user());
            let calls = |messages: &[Message]| {
                let calls = messages.iter().enumerate().filter_map(|(at, message)| {
                    let Message::Assistant { tool_calls, .. } = message else {
                        return None;
                    };
                    (!tool_calls.is_empty()).then_some(at)
                });
                calls.collect::<Vec<_>>()
            };
            let repaired = complete_calls(messages);
            let [at] = calls(&repaired)[..] else {
                panic!("one call is left: {repaired:?}");
            };
            assert_eq!(repaired[at + 1], tool("call_A"));
            let users = |message: &&Message| matches!(message, Message::User(_));
            assert!(repaired.iter().filter(users).count() >= 3, "{repaired:?}");
        }
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let offer = Offer::none("acme".parse().unwrap());
        let stored = [
            stored_assistant("looking", &[call("c1")], &offer),
            stored_tool("c1", "answer", false),
        ];
        let read = stored.map(|message| {
            from_stored(&MessageView {
                seq: 1,
                role: message.role,
                content: message.content,
                run_id: None,
                created_at: chrono::DateTime::UNIX_EPOCH,
            })
        });
        assert_eq!(
            read,
            [Some(assistant("looking", &["c1"])), Some(tool("c1"))]
        );
    }
}
