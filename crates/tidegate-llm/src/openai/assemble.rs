//! Puts an answer together from its pieces. Pure: bytes in, pieces out.
//!
//! Invariant: a tool call is handed on only when the answer has ended well and its arguments are a complete JSON
//! object; a call that was cut off is never executed (R13.5).

use serde_json::Value;

use super::{
    classify,
    wire::{self, CallPiece, Choice, Chunk, Said},
};
use crate::{
    chat::{Delta, Finish, FinishReason, TokenCounts, ToolCall, Usage},
    error::{FaultKind, ProviderFault},
    limits::TOOL_CALLS_MAX,
    scrub::{Scrubber, StreamScrubber},
};

pub(super) struct Assembler {
    scrubber: Scrubber,
    text: StreamScrubber,
    calls: Vec<OpenToolCall>,
    finish: Option<FinishReason>,
    usage: Option<TokenCounts>,
    model: Option<String>,
}

#[derive(Default)]
struct OpenToolCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

fn bad(text: impl Into<String>) -> ProviderFault {
    ProviderFault::new(FaultKind::BadAnswer, text)
}

impl Assembler {
    pub(super) fn new(scrubber: Scrubber) -> Self {
        Self {
            text: StreamScrubber::new(scrubber.clone()),
            scrubber,
            calls: Vec::new(),
            finish: None,
            usage: None,
            model: None,
        }
    }

    /// Whether the model has said why it stopped.
    pub(super) fn said_done(&self) -> bool {
        self.finish.is_some()
    }

    /// Takes one event of a stream.
    pub(super) fn piece(&mut self, event: &str, data: &str) -> Result<Vec<Delta>, ProviderFault> {
        if data.trim().is_empty() {
            return Ok(Vec::new());
        }
        let chunk = serde_json::from_str::<Chunk>(data);
        if event == "error" {
            let body = chunk
                .ok()
                .and_then(|chunk| chunk.error)
                .unwrap_or_else(|| Value::from(data));
            return Err(classify::error_object(&body));
        }
        let chunk = chunk.map_err(|error| {
            bad(format!(
                "a piece of the answer is not the expected JSON: {error}"
            ))
        })?;
        self.chunk(chunk)
    }

    /// Takes a whole answer.
    pub(super) fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, ProviderFault> {
        let chunk: Chunk = serde_json::from_slice(body)
            .map_err(|error| bad(format!("the answer is not the expected JSON: {error}")))?;
        if chunk.error.is_none() && chunk.choices.is_empty() {
            return Err(bad("the answer holds no choices"));
        }
        let mut deltas = self.chunk(chunk)?;
        deltas.retain(|delta| *delta != Delta::Progress);
        // One piece cannot be cut after the fact: whatever it says about its end is its end.
        self.finish.get_or_insert(FinishReason::Other);
        deltas.extend(self.end()?);
        Ok(deltas)
    }

    fn chunk(&mut self, chunk: Chunk) -> Result<Vec<Delta>, ProviderFault> {
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(classify::error_object(&error));
        }
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.model.get_or_insert(model);
        }
        match chunk.usage.as_deref().map(wire::figures) {
            Some(wire::Figures::Counted(tokens)) => self.usage = Some(tokens),
            Some(wire::Figures::Absurd) => self.usage = None,
            Some(wire::Figures::Absent) | None => {}
        }
        let mut deltas = Vec::new();
        for choice in chunk.choices {
            // Only one answer is ever asked for.
            if choice.index == 0 {
                self.choice(choice, &mut deltas)?;
            }
        }
        Ok(deltas)
    }

    fn choice(&mut self, choice: Choice, deltas: &mut Vec<Delta>) -> Result<(), ProviderFault> {
        let Said {
            content,
            reasoning_content,
            refusal,
            tool_calls,
        } = choice.delta.unwrap_or_default();
        let said = content.map(wire::Content::into_text).unwrap_or_default()
            + &refusal.unwrap_or_default();
        if !said.is_empty() {
            let clean = self.text.feed(&said);
            deltas.push(if clean.is_empty() {
                Delta::Progress
            } else {
                Delta::Text(clean)
            });
        }
        let thinks = reasoning_content.is_some_and(|value| !value.is_null() && value != "");
        let tool_calls = tool_calls.unwrap_or_default();
        if thinks || !tool_calls.is_empty() {
            deltas.push(Delta::Progress);
        }
        for piece in tool_calls {
            self.tool_call(piece)?;
        }
        if let Some(reason) = choice.finish_reason {
            self.finish = Some(wire::finish_reason(&reason));
        }
        Ok(())
    }

    /// Pieces of one call share its index; endpoints without an index begin each call with a new id.
    fn tool_call(&mut self, piece: CallPiece) -> Result<(), ProviderFault> {
        let id = piece.id.filter(|id| !id.is_empty());
        let position = match (piece.index, &id) {
            (Some(index), id) => self.calls.iter().position(|call| {
                call.index == Some(index)
                    && id
                        .as_ref()
                        .is_none_or(|id| call.id.is_empty() || call.id == *id)
            }),
            (None, Some(id)) => self.calls.iter().position(|call| call.id == *id),
            (None, None) => self.calls.len().checked_sub(1),
        };
        let position = match position {
            Some(position) => position,
            None if self.calls.len() >= TOOL_CALLS_MAX => {
                return Err(bad(format!(
                    "the answer holds more than {TOOL_CALLS_MAX} tool calls"
                )));
            }
            None => {
                self.calls.push(OpenToolCall {
                    index: piece.index,
                    ..OpenToolCall::default()
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[position];
        if let Some(id) = id {
            call.id = id;
        }
        let function = piece.function.unwrap_or_default();
        if let Some(name) = function.name.filter(|name| !name.is_empty()) {
            // Sent once by most, repeated by some, never in pieces by those that were seen.
            call.name = name;
        }
        match function.arguments {
            Some(Value::String(text)) => call.arguments.push_str(&text),
            None | Some(Value::Null) => {}
            Some(whole) => call.arguments = whole.to_string(),
        }
        Ok(())
    }

    /// The answer has ended: hands out what was held back, the tool calls and the end.
    pub(super) fn end(&mut self) -> Result<Vec<Delta>, ProviderFault> {
        let Some(reason) = self.finish else {
            return Err(ProviderFault::new(
                FaultKind::CutStream,
                "the answer broke off before its end",
            ));
        };
        let mut deltas = Vec::new();
        let rest = self.text.finish();
        if !rest.is_empty() {
            deltas.push(Delta::Text(rest));
        }
        let calls = std::mem::take(&mut self.calls);
        let called = !calls.is_empty();
        for (position, call) in calls.into_iter().enumerate() {
            deltas.push(Delta::ToolCall(self.complete(position, call)?));
        }
        let reason = match reason {
            FinishReason::Stop | FinishReason::Other if called => FinishReason::ToolCalls,
            FinishReason::ToolCalls if !called => FinishReason::Stop,
            reason => reason,
        };
        let usage = self.usage.map_or(Usage::Unknown, Usage::Exact);
        deltas.push(Delta::Finished(Finish {
            reason,
            usage,
            model: self.model.take(),
        }));
        Ok(deltas)
    }

    fn complete(&self, position: usize, call: OpenToolCall) -> Result<ToolCall, ProviderFault> {
        if call.name.is_empty() {
            return Err(bad("a tool call has no name"));
        }
        let name = self.scrubber.clean(&call.name);
        let arguments = match call.arguments.trim() {
            "" => "{}".to_owned(),
            text => self.scrubber.clean(text),
        };
        match serde_json::from_str::<Value>(&arguments) {
            Ok(Value::Object(_)) => {}
            Ok(_) => {
                return Err(bad(format!(
                    "the arguments of tool call {name:?} are not a JSON object"
                )));
            }
            Err(error) if error.is_eof() => {
                return Err(bad(format!(
                    "the arguments of tool call {name:?} were cut off; it is not executed"
                )));
            }
            Err(_) => {
                return Err(bad(format!(
                    "the arguments of tool call {name:?} are not valid JSON"
                )));
            }
        }
        // Some endpoints name no id; the answer to the call needs one.
        let id = if call.id.is_empty() {
            format!("call_{position}")
        } else {
            call.id
        };
        Ok(ToolCall {
            id,
            name,
            arguments,
        })
    }
}

#[cfg(test)]
mod tests;
