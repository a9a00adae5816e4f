//! Kinds of events on a run's stream (R4.6).

use crate::text_enum;

text_enum! {
    /// What an event says. The stream of a run ends with [`EventKind::RunEnded`].
    pub enum EventKind: "event kind" {
        /// The run was accepted. Body: `kind`, `capability`.
        RunQueued = "run.queued",
        /// An attempt began. Body: `attempt`, `fence`, `pool`.
        RunStarted = "run.started",
        /// An attempt ended and the run did not. Body: `attempt`, `outcome`, `code`, `retryInMs`.
        AttemptClosed = "attempt.closed",
        /// A piece of the reply. Body: `text`.
        MessageDelta = "message.delta",
        /// A whole message of the conversation. Body: `role`, `content`.
        MessageCompleted = "message.completed",
        /// A model was asked. Body: `model`, `usage`.
        ModelCalled = "model.called",
        /// A tool is being called. Body: `callId`, `tool`.
        ToolCalled = "tool.called",
        /// A tool answered. Body: `callId`, `tool`, `isError`.
        ToolFinished = "tool.finished",
        /// Anything a worker wants to say. Body: free.
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
}
