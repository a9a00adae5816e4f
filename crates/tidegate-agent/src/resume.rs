//! What earlier attempts of a run left, where they had effects (R4.5): the messages up to the calls that were open.
//!
//! An attempt begins anew unless an earlier one had an effect. Then beginning anew could have it twice, under another
//! plan of the model and other names of calls; the attempt goes on from what was said and done instead.

use std::collections::HashSet;

use serde_json::Value;
use tidegate_llm::{Message, ToolCall};
use tidegate_model::api::NewMessage;

use crate::conversation::read_message;

/// A call of a tool, with the name that people read and the journal knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedCall {
    pub(crate) call: ToolCall,
    pub(crate) tool: String,
}

/// Where to go on.
#[derive(Debug, Default)]
pub(crate) struct Resumed {
    /// What the conversation gets of it.
    pub(crate) kept: Vec<NewMessage>,
    /// The same as models are shown it.
    pub(crate) messages: Vec<Message>,
    /// Calls of the last answer that nobody answered.
    pub(crate) pending: Vec<PlannedCall>,
    /// Answers of models so far.
    pub(crate) steps: u32,
    /// Bytes of answers of tools so far.
    pub(crate) tool_bytes: usize,
}

impl Resumed {
    /// Reads the messages of earlier attempts. An answer without calls ended its attempt, which did not complete the
    /// run; the model is asked again.
    pub(crate) fn of(earlier: Vec<NewMessage>) -> Self {
        let mut resumed = Self::default();
        let mut answered = HashSet::new();
        for message in earlier {
            let Some(read) = read_message(message.role, &message.content) else {
                continue;
            };
            match &read {
                Message::Assistant { tool_calls, .. } if tool_calls.is_empty() => continue,
                Message::Assistant { tool_calls, .. } => {
                    resumed.steps += 1;
                    resumed.pending = planned(&message.content, tool_calls);
                    answered.clear();
                }
                Message::Tool { call_id, text } => {
                    answered.insert(call_id.clone());
                    resumed.tool_bytes += text.len();
                }
                Message::User(_) | Message::System(_) => continue,
            }
            resumed.messages.push(read);
            resumed.kept.push(message);
        }
        let open = |planned: &PlannedCall| !answered.contains(&planned.call.id);
        resumed.pending.retain(open);
        resumed
    }

    /// Every id of a call so far.
    pub(crate) fn call_ids(&self) -> HashSet<String> {
        let calls = self.messages.iter().filter_map(|message| match message {
            Message::Assistant { tool_calls, .. } => Some(tool_calls),
            _ => None,
        });
        calls.flatten().map(|call| call.id.clone()).collect()
    }
}

/// Calls with the names that were stored with them: a tool that is not offered any more keeps the name it had.
fn planned(content: &Value, calls: &[ToolCall]) -> Vec<PlannedCall> {
    let stored = content["toolCalls"].as_array();
    let name = |id: &str| {
        let mut stored = stored.into_iter().flatten();
        let found = stored.find(|call| call["callId"] == id);
        found.and_then(|call| call["tool"].as_str())
    };
    let planned = calls.iter().map(|call| PlannedCall {
        tool: name(&call.id).unwrap_or(&call.name).to_owned(),
        call: call.clone(),
    });
    planned.collect()
}

/// Gives each call of an answer an id of its own within the run: models repeat theirs, and write what fits into no path.
pub(crate) fn own_ids(calls: &mut [ToolCall], taken: &mut HashSet<String>, step: u32) {
    for (index, call) in calls.iter_mut().enumerate() {
        let usable = call.id.parse::<tidegate_model::effect::CallId>().is_ok();
        if !usable || taken.contains(&call.id) {
            let mut id = format!("call_{step}_{index}");
            while taken.contains(&id) {
                id.push('_');
            }
            call.id = id;
        }
        taken.insert(call.id.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_model::api::MessageRole;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall {
            id: id.to_owned(),
            name: "files__write".to_owned(),
            arguments: "{}".to_owned(),
        }
    }

    fn assistant(ids: &[&str]) -> NewMessage {
        let calls = ids.iter().map(|id| {
            json!({"callId": id, "tool": "files/write", "name": "files__write", "arguments": "{}"})
        });
        NewMessage {
            role: MessageRole::Assistant,
            content: json!({"text": "", "toolCalls": calls.collect::<Vec<_>>()}),
        }
    }

    fn tool(id: &str) -> NewMessage {
        NewMessage {
            role: MessageRole::Tool,
            content: json!({"callId": id, "text": "done", "isError": false}),
        }
    }

    /// R4.5: calls that were answered stay answered, those that were not are made, by their stored names and ids.
    #[test]
    fn an_attempt_goes_on_at_the_open_calls() {
        let ended = NewMessage {
            role: MessageRole::Assistant,
            content: json!({"text": "an answer that never completed"}),
        };
        let resumed = Resumed::of(vec![
            assistant(&["a", "b"]),
            tool("a"),
            tool("b"),
            ended,
            assistant(&["c", "d"]),
            tool("c"),
        ]);
        let pending = PlannedCall {
            call: call("d"),
            tool: "files/write".to_owned(),
        };
        assert_eq!(resumed.pending, [pending]);
        assert_eq!((resumed.steps, resumed.tool_bytes), (2, 12));
        assert_eq!((resumed.kept.len(), resumed.messages.len()), (5, 5));
        assert_eq!(resumed.call_ids().len(), 4);
        assert!(Resumed::of(Vec::new()).pending.is_empty());
    }

    #[test]
    fn calls_have_ids_of_their_own() {
        let mut taken = HashSet::from(["call_1".to_owned(), "call_2_1".to_owned()]);
        let mut calls = [call("call_1"), call("a/b"), call("fine"), call("fine")];
        own_ids(&mut calls, &mut taken, 2);
        let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_2_0", "call_2_1_", "fine", "call_2_3"]);
    }
}
