//! Until when an attempt may work: the run's deadline and what is left of its budget, on the local monotonic clock.

use std::time::Duration;

use tidegate_client::worker::{Failure, Job};
use tidegate_model::Code;
use tokio::time::{Instant, sleep_until};

/// The bounds of an attempt. The server enforces the same by its own clock; this stops the work as soon as it is in
/// vain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutOff {
    /// When time is up, and which bound that is.
    ends: Option<(Instant, Code)>,
    /// Tokens that all model calls may use.
    pub(crate) tokens: Option<u64>,
}

impl CutOff {
    pub(crate) fn of(job: &Job) -> Self {
        let run = job.run();
        let from_now = |ms: Option<i64>| {
            let ms = u64::try_from(ms?.max(0)).unwrap_or(0);
            job.began().checked_add(Duration::from_millis(ms))
        };
        let deadline = from_now(run.deadline_in_ms).map(|at| (at, Code::DeadlineExceeded));
        let budget = from_now(run.budget_left.execution_ms).map(|at| (at, Code::BudgetExhausted));
        Self {
            ends: deadline.into_iter().chain(budget).min_by_key(|(at, _)| *at),
            tokens: run
                .budget_left
                .tokens
                .map(|tokens| u64::try_from(tokens).unwrap_or(0)),
        }
    }

    /// When model and tool calls must have ended.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.ends.map(|(at, _)| at)
    }

    /// Waits until time is up.
    pub(crate) async fn passed(self) -> Failure {
        let Some((at, code)) = self.ends else {
            return std::future::pending().await;
        };
        sleep_until(at).await;
        let text = match code {
            Code::DeadlineExceeded => "the deadline of the run passed while it was worked on",
            _ => "the execution time of the run's budget is spent",
        };
        Failure::new(code, text)
    }
}

/// A run whose tokens are spent.
pub(crate) fn tokens_spent() -> Failure {
    Failure::new(
        Code::BudgetExhausted,
        "the tokens of the run's budget are spent; submit it again with a larger budget.tokens",
    )
}
