//! The shapes on the wire. Reading is lenient where endpoints are known to differ, writing is not.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    chat::{ChatRequest, FinishReason, Message, TokenCounts, ToolChoice},
    limits::TOKENS_MAX,
};

/// The body of a request.
pub(super) fn request_body(request: &ChatRequest, ask_for_usage: bool) -> Value {
    let mut body = json!({
        "model": request.model,
        "messages": request.messages.iter().map(message).collect::<Vec<_>>(),
        "stream": request.stream,
    });
    if request.stream && ask_for_usage {
        body["stream_options"] = json!({ "include_usage": true });
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::chat::ToolSpec| {
            let function = json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
            json!({ "type": "function", "function": function })
        };
        body["tools"] = request.tools.iter().map(tool).collect();
        body["tool_choice"] = match request.tool_choice {
            ToolChoice::Auto => "auto",
            ToolChoice::Required => "required",
            ToolChoice::Never => "none",
        }
        .into();
    }
    if let Some(max) = request.max_output_tokens {
        body["max_tokens"] = max.into();
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = temperature.into();
    }
    body
}

fn message(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({ "role": "system", "content": text }),
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Tool { call_id, text } => {
            json!({ "role": "tool", "tool_call_id": call_id, "content": text })
        }
        Message::Assistant { text, tool_calls } if tool_calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        Message::Assistant { text, tool_calls } => {
            let call = |call: &crate::chat::ToolCall| {
                let function = json!({ "name": call.name, "arguments": call.arguments });
                json!({ "id": call.id, "type": "function", "function": function })
            };
            let content = if text.is_empty() {
                Value::Null
            } else {
                text.as_str().into()
            };
            let calls: Vec<Value> = tool_calls.iter().map(call).collect();
            json!({ "role": "assistant", "content": content, "tool_calls": calls })
        }
    }
}

/// A piece of a streamed answer, or a whole answer: they differ in one field.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Chunk {
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) choices: Vec<Choice>,
    /// Read apart, so that figures nobody can believe, or that are no numbers of JSON (1e400), do not spoil a good answer.
    #[serde(default)]
    pub(super) usage: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    #[serde(default)]
    pub(super) index: u64,
    /// `delta` in a stream, `message` otherwise.
    #[serde(default, alias = "message")]
    pub(super) delta: Option<Said>,
    #[serde(default)]
    pub(super) finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Said {
    #[serde(default)]
    pub(super) content: Option<Content>,
    /// Thinking, under the names that endpoints give it.
    #[serde(default, alias = "reasoning")]
    pub(super) reasoning_content: Option<Value>,
    #[serde(default)]
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
pub(super) struct Part {
    #[serde(default)]
    text: Option<String>,
}

impl Content {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

/// A piece of a tool call.
#[derive(Debug, Deserialize)]
pub(super) struct CallPiece {
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) function: Option<FunctionPiece>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionPiece {
    #[serde(default)]
    pub(super) name: Option<String>,
    /// A piece of text; a few endpoints send the whole object.
    #[serde(default)]
    pub(super) arguments: Option<Value>,
}

/// What a usage object says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figures {
    /// Nothing, or only half of it.
    Absent,
    /// Figures that are none, or too large to be believed: the use of the call is unknown.
    Absurd,
    /// Both figures; an explicit zero is a figure (R13.7).
    Counted(TokenCounts),
}

pub(super) fn figures(usage: &RawValue) -> Figures {
    let Ok(usage) = serde_json::from_str::<Value>(usage.get()) else {
        return Figures::Absurd;
    };
    let figure = |name: &str| usage.get(name).filter(|figure| !figure.is_null());
    let (Some(input), Some(output)) = (figure("prompt_tokens"), figure("completion_tokens")) else {
        return Figures::Absent;
    };
    let believed = |figure: &Value| figure.as_u64().filter(|count| *count <= TOKENS_MAX);
    match believed(input).zip(believed(output)) {
        Some((input, output)) => Figures::Counted(TokenCounts { input, output }),
        None => Figures::Absurd,
    }
}

pub(super) fn finish_reason(text: &str) -> FinishReason {
    match text {
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}
