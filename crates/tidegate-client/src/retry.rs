//! When a call is repeated, and after how long. Pure: time and randomness are arguments.

use std::time::Duration;

use crate::{Error, limits};

/// How failed tries are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries in all; the deadline ends a call earlier. 1 repeats nothing.
    pub max_tries: u32,
    /// The first backoff.
    pub base: Duration,
    /// The longest backoff.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_tries: u32::MAX,
            base: limits::BACKOFF_BASE,
            max: limits::BACKOFF_MAX,
        }
    }
}

impl RetryPolicy {
    /// One try and no more.
    pub const NONE: Self = Self {
        max_tries: 1,
        base: limits::BACKOFF_BASE,
        max: limits::BACKOFF_MAX,
    };

    /// The backoff after `done` tries; `unit` is a random number in [0, 1). Fully jittered at its greatest value too,
    /// so that clients that lost the same server do not come back together.
    pub fn backoff(&self, done: u32, unit: f64) -> Duration {
        let doublings = done.saturating_sub(1).min(20);
        self.base
            .saturating_mul(1 << doublings)
            .min(self.max)
            .mul_f64(unit.clamp(0.0, 1.0))
    }

    /// What follows a failed try.
    pub(crate) fn decide(&self, error: &Error, done: u32, left: Duration, unit: f64) -> Next {
        if !error.is_repeated() || done >= self.max_tries {
            return Next::GiveUp;
        }
        let backoff = self.backoff(done, unit);
        let Some(hint) = error.retry_after() else {
            return if backoff < left {
                Next::After(backoff)
            } else {
                Next::OutOfTime
            };
        };
        // Never before the hint, and not all at the hint.
        if hint >= left {
            Next::HintTooLate(hint)
        } else {
            Next::After(
                (hint + backoff).min(left.saturating_sub(Duration::from_millis(1)).max(hint)),
            )
        }
    }
}

/// What follows a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The error is final.
    GiveUp,
    /// Another try after this wait.
    After(Duration),
    /// The backoff would pass the deadline.
    OutOfTime,
    /// The server asks to come back after the deadline: fail at once and say so.
    HintTooLate(Duration),
}

#[cfg(test)]
mod tests {
    use tidegate_model::{Code, api::Problem};

    use super::*;

    const LEFT: Duration = Duration::from_secs(10);

    fn busy(retry_after_ms: Option<u64>) -> Error {
        let mut problem = Problem::new(Code::QueueFull, "full");
        problem.retry_after_ms = retry_after_ms;
        problem.into()
    }

    /// R22.3: full jitter from nothing to the bound, at the greatest backoff as at the first.
    #[test]
    fn the_backoff_stays_jittered_at_its_maximum() {
        let policy = RetryPolicy::default();
        for done in [1, 2, 5, 30, u32::MAX] {
            let bound = policy.backoff(done, 1.0);
            assert!(bound <= policy.max, "{done}");
            assert_eq!(policy.backoff(done, 0.0), Duration::ZERO, "{done}");
            assert_eq!(policy.backoff(done, 0.5), bound / 2, "{done}");
        }
        assert_eq!(policy.backoff(30, 1.0), policy.max);
    }

    /// O-28: a hint past the deadline fails at once; an earlier one is never undercut.
    #[test]
    fn a_hint_is_obeyed_or_ends_the_call() {
        let policy = RetryPolicy::default();
        let next = policy.decide(&busy(Some(10_000)), 1, LEFT, 0.5);
        assert_eq!(next, Next::HintTooLate(Duration::from_secs(10)));
        for unit in [0.0, 0.3, 0.99] {
            let Next::After(wait) = policy.decide(&busy(Some(2_000)), 3, LEFT, unit) else {
                panic!("a near hint is waited for");
            };
            assert!(wait >= Duration::from_secs(2) && wait < LEFT, "{wait:?}");
        }
        let nearly = policy.decide(&busy(Some(9_999)), 30, LEFT, 1.0);
        assert_eq!(nearly, Next::After(Duration::from_millis(9_999)));
    }

    #[test]
    fn only_what_may_pass_is_repeated() {
        let policy = RetryPolicy::default();
        for code in Code::ALL {
            let error: Error = Problem::new(*code, "x").into();
            let repeated = policy.decide(&error, 1, LEFT, 0.1) != Next::GiveUp;
            // R7.7: a refused admission is the caller's to ask for again.
            let own = *code != Code::ResourceExhausted;
            assert_eq!(repeated, code.retryable() && own, "{code}");
        }
        assert_eq!(
            RetryPolicy::NONE.decide(&busy(None), 1, LEFT, 0.1),
            Next::GiveUp
        );
        assert_eq!(
            policy.decide(&busy(None), 30, Duration::from_secs(1), 0.9),
            Next::OutOfTime
        );
    }
}
