//! Kinds of events on a run's stream (R4.6).

use serde_json::Value;

use crate::{api::MessageRole, text_enum};

text_enum! {
    /// What an event says. The stream of a run ends with [`EventKind::RunEnded`].
    pub enum EventKind: "event kind" {
        /// The run was accepted. Body: `kind`, `capability`.
        RunQueued = "run.queued",
        /// An attempt began. Body: `attempt`, `fence`, `pool`.
        RunStarted = "run.started",
        /// An attempt ended and the run did not. Body: `attempt`, `outcome`, `code`, `retryInMs`.
        AttemptClosed = "attempt.closed",
        /// A piece of the reply. Body: `text`, a string.
        MessageDelta = "message.delta",
        /// A whole message of the conversation. Body: `role` (`user`, `assistant`, `tool` or `system`) and `content`, a
        /// string or an object.
        MessageCompleted = "message.completed",
        /// A model was asked. Body: `model`, a string, and `usage`, an object; in it `inputTokens` and `outputTokens` are
        /// whole numbers or null.
        ModelCalled = "model.called",
        /// A tool is being called. Body: `callId` and `tool`, strings.
        ToolCalled = "tool.called",
        /// A tool answered. Body: `callId` and `tool`, strings, and `isError`, true or false.
        ToolFinished = "tool.finished",
        /// Anything a worker wants to say. Body: free, any JSON.
        WorkerNote = "worker.note",
        /// An attempt ended and left effects of which nobody knows whether they happened; a person decides. Body: `attempt`,
        /// `outcome`, `code`, `effects` with `callId`, `tool`, `intendedAt`.
        RunReview = "run.review",
        /// A person said what became of effects. Body: `verdict`, `callIds`, `left` (how many are still in question), `by`.
        RunResolved = "run.resolved",
        /// An attempt gave everything back and the run waits. Body: `attempt`, `on`, and what for: `mode`, `runs`, `ask`,
        /// `askNo`, `until`.
        RunWaiting = "run.waiting",
        /// What the run waited for is there, and it is queued. Body: `by`, and `run` where a child ended.
        RunWoken = "run.woken",
        /// A dead letter was put back. Body: `by`.
        RunRequeued = "run.requeued",
        /// The run is over. Body: `state`, `code`.
        RunEnded = "run.ended",
    }
}

impl EventKind {
    /// Whether the holder of a lease may append it; all others are written by the platform.
    pub const fn may_worker_append(self) -> bool {
        matches!(
            self,
            Self::MessageDelta
                | Self::MessageCompleted
                | Self::ModelCalled
                | Self::ToolCalled
                | Self::ToolFinished
                | Self::WorkerNote
        )
    }

    /// What a body of this kind must be, where this one is not; who reads the stream relies on it. A body may say more
    /// than its kind asks for. Only kinds that a worker may append are checked.
    pub fn refuse_body(self, body: &Value) -> Result<(), &'static str> {
        let text = |field: &str| body[field].is_string();
        let (fits, shape) = match self {
            Self::MessageDelta => (text("text"), "an object with `text`, a string"),
            Self::MessageCompleted => (
                is_role(&body["role"]) && (text("content") || body["content"].is_object()),
                "an object with `role` (user, assistant, tool or system) and `content`, a string or an object",
            ),
            Self::ModelCalled => (
                text("model") && is_usage(&body["usage"]),
                "an object with `model`, a string, and `usage`, an object whose `inputTokens` and `outputTokens` are \
                 whole numbers or null",
            ),
            Self::ToolCalled => (
                text("callId") && text("tool"),
                "an object with `callId` and `tool`, strings",
            ),
            Self::ToolFinished => (
                text("callId") && text("tool") && body["isError"].is_boolean(),
                "an object with `callId` and `tool`, strings, and `isError`, true or false",
            ),
            _ => return Ok(()),
        };
        if fits { Ok(()) } else { Err(shape) }
    }
}

fn is_role(role: &Value) -> bool {
    role.as_str()
        .is_some_and(|role| role.parse::<MessageRole>().is_ok())
}

fn is_usage(usage: &Value) -> bool {
    let counted = |field: &str| usage[field].is_null() || usage[field].is_u64();
    usage.is_object() && counted("inputTokens") && counted("outputTokens")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// R4.6: what stands on a stream is of its kind's shape.
    #[test]
    fn bodies_are_of_their_kind() {
        let call = json!({"callId": "c", "tool": "t"});
        let good = [
            (EventKind::MessageDelta, json!({"text": "", "more": 1})),
            (
                EventKind::MessageCompleted,
                json!({"role": "tool", "content": {"callId": "c", "text": "x"}}),
            ),
            (
                EventKind::MessageCompleted,
                json!({"role": "assistant", "content": "hello"}),
            ),
            (
                EventKind::ModelCalled,
                json!({"model": "m", "usage": {"inputTokens": 1, "outputTokens": null}}),
            ),
            (EventKind::ToolCalled, call.clone()),
            (
                EventKind::ToolFinished,
                json!({"callId": "c", "tool": "t", "isError": false}),
            ),
            (EventKind::WorkerNote, json!([1, "free"])),
        ];
        for (kind, body) in good {
            assert_eq!(kind.refuse_body(&body), Ok(()), "{kind} {body}");
        }
        let nonsense = [json!(null), json!("zz"), json!([1]), json!({}), json!(1)];
        let almost = [
            (EventKind::MessageDelta, json!({"text": 1})),
            (
                EventKind::MessageCompleted,
                json!({"role": "nobody", "content": "x"}),
            ),
            (
                EventKind::MessageCompleted,
                json!({"role": "user", "content": [1]}),
            ),
            (EventKind::ModelCalled, json!({"model": "m"})),
            (
                EventKind::ModelCalled,
                json!({"model": "m", "usage": {"inputTokens": -1}}),
            ),
            (EventKind::ToolCalled, json!({"callId": "c"})),
            (EventKind::ToolFinished, call),
        ];
        for (kind, body) in almost {
            assert!(kind.refuse_body(&body).is_err(), "{kind} {body}");
            for body in &nonsense {
                assert!(kind.refuse_body(body).is_err(), "{kind} {body}");
            }
        }
    }
}
