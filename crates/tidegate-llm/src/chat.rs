//! What is asked of a model and what it answers, in terms of no particular provider.
//!
//! `Debug` of requests and messages shows sizes only: contents of messages never reach a log.

use std::fmt;

use futures::{StreamExt, stream::BoxStream};
use serde_json::Value;

use crate::error::{FaultKind, LlmError, ProviderFault};

/// One question to a model.
#[derive(Clone)]
pub struct ChatRequest {
    /// The provider's name of the model; set by [`crate::Model::chat`].
    pub model: String,
    /// The conversation so far, oldest first.
    pub messages: Vec<Message>,
    /// The tools the model may call.
    pub tools: Vec<ToolSpec>,
    /// Whether it may, must or must not call one.
    pub tool_choice: ToolChoice,
    /// The most tokens of the answer.
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Whether the answer should arrive in pieces.
    pub stream: bool,
}

impl ChatRequest {
    /// A streamed question without tools.
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            model: String::new(),
            messages,
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output_tokens: None,
            temperature: None,
            stream: true,
        }
    }
}

impl fmt::Debug for ChatRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatRequest")
            .field("model", &self.model)
            .field("messages", &self.messages)
            .field("tools", &self.tools.len())
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// One message of a conversation.
#[derive(Clone, PartialEq, Eq)]
pub enum Message {
    /// Instructions of the operator.
    System(String),
    /// A person, or whoever speaks for one.
    User(String),
    /// The model.
    Assistant {
        /// What it said; empty where it only called tools.
        text: String,
        /// The tools it called.
        tool_calls: Vec<ToolCall>,
    },
    /// What a tool answered.
    Tool {
        /// The call that is answered.
        call_id: String,
        /// The answer.
        text: String,
    },
}

impl Message {
    /// The text of the message.
    pub fn text(&self) -> &str {
        match self {
            Self::System(text)
            | Self::User(text)
            | Self::Assistant { text, .. }
            | Self::Tool { text, .. } => text,
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (role, calls) = match self {
            Self::System(_) => ("System", 0),
            Self::User(_) => ("User", 0),
            Self::Assistant { tool_calls, .. } => ("Assistant", tool_calls.len()),
            Self::Tool { .. } => ("Tool", 0),
        };
        write!(f, "{role}({} bytes, {calls} tool calls)", self.text().len())
    }
}

/// A tool as it is offered to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name the model uses.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON schema of its arguments.
    pub parameters: Value,
}

/// Whether a model may call tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// None, although tools are shown.
    Never,
}

/// A complete tool call: its arguments arrived to the end and are a JSON object.
#[derive(Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The model's id of the call.
    pub id: String,
    /// The tool's name as it was offered.
    pub name: String,
    /// The arguments, a JSON object as text.
    pub arguments: String,
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ToolCall({}, {}, {} bytes)",
            self.id,
            self.name,
            self.arguments.len()
        )
    }
}

/// One piece of an answer. A stream ends with exactly one [`Delta::Finished`] or one error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More text.
    Text(String),
    /// The model works on something that is not text yet: it thinks, or writes the arguments of a tool call.
    Progress,
    /// A complete tool call. All come after the last text, directly before the end.
    ToolCall(ToolCall),
    /// The end.
    Finished(Finish),
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// Why the model stopped.
    pub reason: FinishReason,
    /// What it used.
    pub usage: Usage,
    /// The model that served, where the provider names it.
    pub model: Option<String>,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// It reached the limit of output tokens or of the context.
    Length,
    /// It called tools.
    ToolCalls,
    /// The provider's filter stopped it.
    ContentFilter,
    /// A reason this version does not know.
    Other,
}

/// Tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCounts {
    /// Tokens read by the model.
    pub input: u64,
    /// Tokens written by the model.
    pub output: u64,
}

/// What is known about the use of a call (R13.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// The provider's own figures; zero is a figure. Also of a call that was refused or never sent.
    Exact(TokenCounts),
    /// The call broke off: at least this much was used.
    LowerBound(TokenCounts),
    /// The call ended well and the provider named no figures.
    Unknown,
}

impl Usage {
    /// Nothing was used, for certain.
    pub const NOTHING: Self = Self::Exact(TokenCounts {
        input: 0,
        output: 0,
    });

    /// The text form, for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact(_) => "exact",
            Self::LowerBound(_) => "lower_bound",
            Self::Unknown => "unknown",
        }
    }

    /// The figures, where there are any.
    pub const fn tokens(self) -> Option<TokenCounts> {
        match self {
            Self::Exact(tokens) | Self::LowerBound(tokens) => Some(tokens),
            Self::Unknown => None,
        }
    }
}

/// The pieces of an answer. Dropping it aborts the request and gives back the slot at once.
pub type ChatStream = BoxStream<'static, Result<Delta, LlmError>>;

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// All text.
    pub text: String,
    /// All tool calls.
    pub tool_calls: Vec<ToolCall>,
    /// How it ended.
    pub finish: Finish,
}

/// Reads a stream to its end.
pub async fn collect(mut stream: ChatStream) -> Result<Answer, LlmError> {
    let mut text = String::new();
    let mut tool_calls = Vec::new();
    while let Some(delta) = stream.next().await {
        match delta? {
            Delta::Text(more) => text.push_str(&more),
            Delta::Progress => {}
            Delta::ToolCall(call) => tool_calls.push(call),
            Delta::Finished(finish) => {
                return Ok(Answer {
                    text,
                    tool_calls,
                    finish,
                });
            }
        }
    }
    Err(ProviderFault::new(FaultKind::CutStream, "the answer ended without an end").into())
}
