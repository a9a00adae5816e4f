//! How an attempt ends, as its handler says it.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde_json::Value;
use tidegate_model::{
    Code, Fence,
    api::{
        Ask, AttemptUsage, CompleteRun, FailRun, NewMessage, ReleaseRun, WaitForChildren, WaitRun,
    },
    limits::BUDGET_MAX,
};

use crate::limits;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The run is done.
    Completed {
        /// What the run gives back.
        result: Value,
        /// Messages for the conversation of a turn, in order.
        messages: Vec<NewMessage>,
    },
    /// The attempt failed.
    Failed(Failure),
    /// The run goes back to the queue, without any effect of this attempt.
    Released,
    /// The run waits and holds nothing meanwhile; its next attempt goes on from its context.
    Waiting {
        /// What it waits for.
        wait: WaitFor,
        /// Messages that the conversation of a turn gets now, in order.
        messages: Vec<NewMessage>,
    },
}

/// What a run waits for; one of the first two at most, and one of the three at least.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitFor {
    /// Ends of children.
    pub children: Option<WaitForChildren>,
    /// The answer of a person.
    pub input: Option<Ask>,
    /// A time.
    pub until: Option<DateTime<Utc>>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What others match on.
    pub code: Code,
    /// What to tell the run's owner; no secrets, no contents of messages. Cut at 2,000 characters.
    pub detail: String,
    /// Whether another attempt may help.
    pub retryable: bool,
    /// Not before this, where the cause said so.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure that is repeated if its code says that repeating can help.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            retryable: code.retryable(),
            retry_after: None,
        }
    }

    /// The worker obeyed a cancel.
    pub fn cancelled() -> Self {
        Self::new(Code::Cancelled, "stopped as asked")
    }
}

/// What an attempt used so far. Counted while it works, so that it is known whatever ends the attempt.
///
/// The sum stops at [`BUDGET_MAX`], the most that a report may name and more than any budget: a report above it would be
/// refused and leave the run to the end of its lease. Reaching it is logged, because no model uses that much.
#[derive(Debug, Default)]
pub struct UsageMeter {
    tokens: AtomicI64,
}

impl UsageMeter {
    /// Adds tokens of a model call; whether all of them could be counted.
    pub fn add_tokens(&self, tokens: u64) -> bool {
        let added = i64::try_from(tokens).unwrap_or(i64::MAX);
        let sum = |before: i64| before.saturating_add(added);
        let add = |before: i64| Some(sum(before).min(BUDGET_MAX));
        // It always gives a value; the other arm is the value before as well.
        let (Ok(before) | Err(before)) =
            self.tokens
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let counted = sum(before) <= BUDGET_MAX;
        if !counted && before < BUDGET_MAX {
            tracing::warn!(
                tokens,
                most = BUDGET_MAX,
                "a model call says that it used more tokens than can be reported"
            );
        }
        counted
    }

    /// Tokens so far.
    pub fn tokens(&self) -> i64 {
        self.tokens.load(Ordering::Relaxed)
    }

    pub(super) fn read(&self) -> AttemptUsage {
        AttemptUsage {
            tokens: self.tokens(),
        }
    }
}

/// What is written for an outcome.
#[derive(Debug, Clone)]
pub(super) enum Report {
    Complete(CompleteRun),
    Fail(FailRun),
    Release(ReleaseRun),
    Wait(WaitRun),
}

impl Report {
    pub(super) fn new(outcome: Outcome, fence: Fence, usage: &UsageMeter) -> Self {
        let usage = usage.read();
        match outcome {
            Outcome::Completed { result, messages } => Self::Complete(CompleteRun {
                fence,
                result,
                messages,
                usage,
            }),
            Outcome::Failed(failure) => Self::Fail(FailRun {
                fence,
                code: failure.code,
                detail: Some(clean(&failure.detail)),
                retryable: failure.retryable,
                retry_after_ms: failure
                    .retry_after
                    .and_then(|after| u64::try_from(after.as_millis()).ok()),
                usage,
            }),
            Outcome::Released => Self::Release(ReleaseRun { fence, usage }),
            Outcome::Waiting { wait, messages } => Self::Wait(WaitRun {
                fence,
                children: wait.children,
                input: wait.input,
                until: wait.until,
                messages,
                usage,
            }),
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Fail(_) => "fail",
            Self::Release(_) => "release",
            Self::Wait(_) => "wait",
        }
    }
}

/// What the server takes: bounded, and without NUL, which PostgreSQL cannot store.
fn clean(detail: &str) -> String {
    detail
        .chars()
        .filter(|c| *c != '\0')
        .take(limits::FAIL_DETAIL_MAX_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_stops_at_what_a_report_may_name() {
        let meter = UsageMeter::default();
        assert!(meter.add_tokens(7));
        assert!(meter.add_tokens(u64::try_from(BUDGET_MAX).unwrap() - 7));
        assert_eq!(meter.tokens(), BUDGET_MAX);
        for tokens in [1, u64::MAX] {
            assert!(!meter.add_tokens(tokens), "{tokens}");
            assert_eq!(meter.read().tokens, BUDGET_MAX);
        }
    }
}
