//! What follows an attempt (R3.10, R3.11, R4.4): the run ends, is queued again, or backs off.
//!
//! The inputs are what the closing transaction read under the lock of the lease, so that simulator, takeover and
//! completion decide by the same function. Nothing here looks at a capability (R4.7).

pub use tidegate_model::run::StopReason;
use tidegate_model::{
    Code,
    run::{AttemptOutcome, RunState},
};

/// The lease and its run, as read under the lease's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptFacts {
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// The most attempts of the run.
    pub max_attempts: i32,
    /// Leases of this run that were lost before this one.
    pub leases_lost: i32,
    /// Time under a lease, this attempt included, in milliseconds.
    pub spent_ms: i64,
    /// The most of it.
    pub budget_ms: Option<i64>,
    /// Tokens used, this attempt included.
    pub spent_tokens: i64,
    /// The most of them.
    pub budget_tokens: Option<i64>,
    /// Whether the run's deadline has passed.
    pub deadline_passed: bool,
    /// Why the attempt was told to stop, if it was.
    pub stop: Option<StopReason>,
    /// First step of the backoff, in milliseconds.
    pub backoff_base_ms: i64,
    /// Largest step of the backoff, in milliseconds.
    pub backoff_max_ms: i64,
    /// Whether the attempt leaves an effect that may not be repeated and of which nobody knows whether it happened (R4.5).
    pub unknown_effects: bool,
}

/// How an attempt came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Its holder completed the run.
    Completed,
    /// Its holder failed.
    Failed {
        /// Why.
        code: Code,
        /// Whether another attempt may help.
        retryable: bool,
        /// Not before this, in milliseconds.
        retry_after_ms: i64,
    },
    /// Its holder handed the run back before any effect.
    Released,
    /// Its holder gave everything back, and the run waits (R3.13).
    Waiting,
    /// Its lease ran out, or belongs to a lost history.
    LeaseLost,
    /// It was told to stop and the grace is over.
    FencedOff,
}

/// What becomes of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It is over.
    End {
        /// How.
        state: RunState,
        /// Why, unless it succeeded.
        code: Option<Code>,
    },
    /// It is queued at the head of its tenant at once.
    QueueAtHead,
    /// It waits until what it waits for is there.
    Wait,
    /// It backs off.
    BackOff {
        /// For this long, in milliseconds.
        delay_ms: i64,
    },
    /// A person decides what became of an effect.
    Review,
}

/// What is written about an attempt and what becomes of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// How the attempt is recorded.
    pub outcome: AttemptOutcome,
    /// Why, where it did not succeed.
    pub code: Option<Code>,
    /// What becomes of the run.
    pub next: Disposition,
    /// Whether the attempt counts against the bound.
    pub counts: bool,
    /// Whether the lease counts as lost.
    pub lost: bool,
}

/// Decides what follows an attempt. `jitter` is uniform in `[0, 1)`.
pub fn after_attempt(facts: &AttemptFacts, report: Report, jitter: f64) -> Verdict {
    if let Some(verdict) = stopped(facts, report) {
        return verdict;
    }
    let verdict = withdrawn(facts).unwrap_or_else(|| of_report(facts, report, jitter));
    // What an attempt under a withdrawn epoch says of its effects is not taken either.
    let report = if verdict.code == Some(Code::EpochWithdrawn) {
        Report::FencedOff
    } else {
        report
    };
    // A holder that completes knows what it did. Any other end, the last attempt's included, leaves it to a person: the
    // run neither calls again blindly nor ends with a question open.
    if facts.unknown_effects && report != Report::Completed {
        return Verdict {
            next: Disposition::Review,
            ..verdict
        };
    }
    verdict
}

/// What follows where a holder completes an attempt that was not told to stop and whose deadline has not passed: no other
/// fact can change it, so that the store need not read them.
pub const fn plain_success() -> Verdict {
    Verdict {
        outcome: AttemptOutcome::Succeeded,
        code: None,
        next: Disposition::End {
            state: RunState::Succeeded,
            code: None,
        },
        counts: true,
        lost: false,
    }
}

/// What follows by the report alone.
fn of_report(facts: &AttemptFacts, report: Report, jitter: f64) -> Verdict {
    match report {
        Report::Completed => plain_success(),
        Report::Failed {
            code,
            retryable,
            retry_after_ms,
        } => Verdict {
            outcome: AttemptOutcome::Failed,
            code: Some(code),
            next: if retryable {
                retry(facts, jitter, retry_after_ms)
            } else {
                ended(RunState::Failed, code)
            },
            counts: true,
            lost: false,
        },
        Report::Released => Verdict {
            outcome: AttemptOutcome::Released,
            code: None,
            next: Disposition::QueueAtHead,
            counts: false,
            lost: false,
        },
        // Waiting is no failure: it costs no attempt, however often a run waits.
        Report::Waiting => Verdict {
            outcome: AttemptOutcome::Waiting,
            code: None,
            next: Disposition::Wait,
            counts: false,
            lost: false,
        },
        // Only a stopped attempt is fenced off; without a mark the lease is treated as lost.
        Report::LeaseLost | Report::FencedOff => Verdict {
            outcome: AttemptOutcome::LeaseLost,
            code: Some(Code::LeaseLost),
            next: if facts.leases_lost == 0 && facts.attempt < facts.max_attempts {
                Disposition::QueueAtHead
            } else {
                retry(facts, jitter, 0)
            },
            counts: true,
            lost: true,
        },
    }
}

/// What was asked for before the report, or has passed with it, wins over the report; a completed run keeps its result
/// unless it was told to stop.
fn stopped(facts: &AttemptFacts, report: Report) -> Option<Verdict> {
    let completed = matches!(report, Report::Completed);
    let over_budget = facts
        .budget_ms
        .is_some_and(|budget| facts.spent_ms >= budget)
        || facts
            .budget_tokens
            .is_some_and(|budget| facts.spent_tokens >= budget);
    let (outcome, state, code) = match facts.stop {
        Some(why @ (StopReason::Cancel | StopReason::ParentEnded)) => {
            (AttemptOutcome::Cancelled, RunState::Cancelled, why.code())
        }
        _ if facts.deadline_passed || facts.stop == Some(StopReason::Deadline) => (
            AttemptOutcome::Expired,
            RunState::Expired,
            Code::DeadlineExceeded,
        ),
        _ if !completed && (over_budget || facts.stop == Some(StopReason::Budget)) => (
            AttemptOutcome::BudgetExhausted,
            RunState::Failed,
            Code::BudgetExhausted,
        ),
        _ => return None,
    };
    Some(Verdict {
        outcome,
        code: Some(code),
        next: ended(state, code),
        counts: true,
        lost: matches!(report, Report::LeaseLost),
    })
}

/// An attempt whose epoch was withdrawn ends without effect on its run, whatever it reports: the run is claimed again under
/// the epoch in force (R18.2, R18.3).
fn withdrawn(facts: &AttemptFacts) -> Option<Verdict> {
    (facts.stop == Some(StopReason::EpochWithdrawn)).then_some(Verdict {
        outcome: AttemptOutcome::Released,
        code: Some(Code::EpochWithdrawn),
        next: Disposition::QueueAtHead,
        counts: false,
        lost: false,
    })
}

const fn ended(state: RunState, code: Code) -> Disposition {
    Disposition::End {
        state,
        code: Some(code),
    }
}

fn retry(facts: &AttemptFacts, jitter: f64, at_least_ms: i64) -> Disposition {
    if facts.attempt >= facts.max_attempts {
        return ended(RunState::Failed, Code::AttemptsExhausted);
    }
    Disposition::BackOff {
        delay_ms: backoff_ms(facts, jitter).max(at_least_ms),
    }
}

/// Full jitter: uniform between nothing and the exponential step, so that runs that failed together come back apart,
/// also at the largest step.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the product is below the largest step, which is far below 2^53 milliseconds"
)]
fn backoff_ms(facts: &AttemptFacts, jitter: f64) -> i64 {
    let doublings = u32::try_from(facts.attempt.saturating_sub(1))
        .unwrap_or(0)
        .min(40);
    let step = facts
        .backoff_base_ms
        .saturating_mul(1_i64 << doublings)
        .min(facts.backoff_max_ms);
    (step as f64 * jitter.clamp(0.0, 1.0)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> AttemptFacts {
        AttemptFacts {
            attempt: 1,
            max_attempts: 5,
            leases_lost: 0,
            spent_ms: 10,
            budget_ms: None,
            spent_tokens: 0,
            budget_tokens: None,
            deadline_passed: false,
            stop: None,
            backoff_base_ms: 1_000,
            backoff_max_ms: 300_000,
            unknown_effects: false,
        }
    }

    /// R18.2, R18.3: what an attempt under a withdrawn epoch reports changes nothing; its run starts anew and loses no attempt.
    #[test]
    fn a_withdrawn_epoch_costs_no_attempt() {
        let withdrawn = AttemptFacts {
            stop: Some(StopReason::EpochWithdrawn),
            attempt: 5,
            ..facts()
        };
        let reports = [
            Report::Completed,
            FAILED,
            Report::Released,
            Report::Waiting,
            Report::LeaseLost,
            Report::FencedOff,
        ];
        for report in reports {
            let verdict = after_attempt(&withdrawn, report, 0.5);
            assert_eq!(verdict.next, Disposition::QueueAtHead, "{report:?}");
            assert_eq!(verdict.code, Some(Code::EpochWithdrawn));
            assert!(!verdict.counts && !verdict.lost);
            let unknown = AttemptFacts {
                unknown_effects: true,
                ..withdrawn
            };
            let verdict = after_attempt(&unknown, report, 0.5);
            assert_eq!(verdict.next, Disposition::Review, "{report:?}");
        }
        let late = AttemptFacts {
            deadline_passed: true,
            ..withdrawn
        };
        let verdict = after_attempt(&late, Report::Completed, 0.5);
        assert_eq!(verdict.code, Some(Code::DeadlineExceeded));
    }

    const FAILED: Report = Report::Failed {
        code: Code::ProviderFailed,
        retryable: true,
        retry_after_ms: 0,
    };

    /// R3.10, R3.11, R4.5: nothing but a stop mark and the deadline can change that a completed attempt succeeds. The store
    /// relies on it where it closes without reading the other facts.
    #[test]
    fn a_completed_attempt_succeeds_by_two_facts() {
        for numbers in [0, 1, 5, 1_000_000] {
            for unknown_effects in [false, true] {
                let mut any = AttemptFacts {
                    attempt: 6,
                    leases_lost: 9,
                    spent_ms: numbers,
                    budget_ms: Some(1),
                    spent_tokens: numbers,
                    budget_tokens: Some(1),
                    unknown_effects,
                    ..facts()
                };
                let verdict = after_attempt(&any, Report::Completed, 0.5);
                assert_eq!(verdict, plain_success());
                any.deadline_passed = true;
                assert_ne!(after_attempt(&any, Report::Completed, 0.5), plain_success());
                any.deadline_passed = false;
                any.stop = Some(StopReason::Cancel);
                assert_ne!(after_attempt(&any, Report::Completed, 0.5), plain_success());
            }
        }
    }

    /// R3.11: no backoff after the first lost lease, one after the second, an end at the bound (O-32).
    #[test]
    fn lost_leases_are_bounded() {
        let first = after_attempt(&facts(), Report::LeaseLost, 0.5);
        assert_eq!(first.next, Disposition::QueueAtHead);
        let second = AttemptFacts {
            attempt: 2,
            leases_lost: 1,
            ..facts()
        };
        assert_eq!(
            after_attempt(&second, Report::LeaseLost, 0.5).next,
            Disposition::BackOff { delay_ms: 1_000 }
        );
        let last = AttemptFacts {
            attempt: 5,
            leases_lost: 4,
            ..facts()
        };
        assert_eq!(
            after_attempt(&last, Report::LeaseLost, 0.5).next,
            ended(RunState::Failed, Code::AttemptsExhausted)
        );
        let only = AttemptFacts {
            max_attempts: 1,
            ..facts()
        };
        assert_eq!(
            after_attempt(&only, Report::LeaseLost, 0.5).next,
            ended(RunState::Failed, Code::AttemptsExhausted)
        );
    }

    /// R3.11: exponential, fully jittered, also at the largest step; a hint of the cause is kept.
    #[test]
    fn backoff_is_jittered_over_its_whole_step() {
        let late = AttemptFacts {
            attempt: 90,
            max_attempts: 100,
            ..facts()
        };
        for (jitter, expected) in [(0.0, 0), (0.5, 150_000), (0.999_999, 299_999)] {
            assert_eq!(
                after_attempt(&late, FAILED, jitter).next,
                Disposition::BackOff { delay_ms: expected }
            );
        }
        let hinted = Report::Failed {
            code: Code::LlmBusy,
            retryable: true,
            retry_after_ms: 7_000,
        };
        assert_eq!(
            after_attempt(&facts(), hinted, 0.1).next,
            Disposition::BackOff { delay_ms: 7_000 }
        );
    }

    /// R3.10: a cancelled run stays cancelled, whatever its holder reports.
    #[test]
    fn a_stop_wins_over_every_report() {
        let cancelled = AttemptFacts {
            stop: Some(StopReason::Cancel),
            ..facts()
        };
        for report in [
            Report::Completed,
            FAILED,
            Report::Released,
            Report::Waiting,
            Report::LeaseLost,
            Report::FencedOff,
        ] {
            assert_eq!(
                after_attempt(&cancelled, report, 0.5).next,
                ended(RunState::Cancelled, Code::Cancelled),
                "{report:?}"
            );
        }
        let late = AttemptFacts {
            deadline_passed: true,
            ..facts()
        };
        assert_eq!(
            after_attempt(&late, Report::Completed, 0.5).next,
            ended(RunState::Expired, Code::DeadlineExceeded)
        );
    }

    /// R3.11: poison stops in money; work that finished within its last tokens is kept.
    #[test]
    fn a_spent_budget_ends_the_run() {
        let spent = AttemptFacts {
            spent_tokens: 100,
            budget_tokens: Some(100),
            ..facts()
        };
        for report in [FAILED, Report::LeaseLost, Report::Released, Report::Waiting] {
            assert_eq!(
                after_attempt(&spent, report, 0.5).next,
                ended(RunState::Failed, Code::BudgetExhausted),
                "{report:?}"
            );
        }
        assert!(matches!(
            after_attempt(&spent, Report::Completed, 0.5).next,
            Disposition::End {
                state: RunState::Succeeded,
                ..
            }
        ));
    }

    /// R4.5: an effect of which nobody knows sends the run to a person, however the attempt ended, unless the run is
    /// over for another reason or its holder completed it.
    #[test]
    fn an_unknown_effect_goes_to_a_person() {
        let unknown = AttemptFacts {
            attempt: 5,
            unknown_effects: true,
            ..facts()
        };
        let given_up = Report::Failed {
            code: Code::WorkerFailed,
            retryable: false,
            retry_after_ms: 0,
        };
        for report in [
            FAILED,
            given_up,
            Report::Released,
            Report::Waiting,
            Report::LeaseLost,
        ] {
            let verdict = after_attempt(&unknown, report, 0.5);
            assert_eq!(verdict.next, Disposition::Review, "{report:?}");
            let known = AttemptFacts {
                unknown_effects: false,
                ..unknown
            };
            let otherwise = after_attempt(&known, report, 0.5);
            let facts = |v: Verdict| (v.outcome, v.code, v.counts, v.lost);
            assert_eq!(facts(verdict), facts(otherwise), "{report:?}");
        }
        let completed = after_attempt(&unknown, Report::Completed, 0.5).next;
        assert!(matches!(completed, Disposition::End { .. }));
        for stop in [StopReason::Cancel, StopReason::Budget] {
            let stopped = AttemptFacts {
                stop: Some(stop),
                ..unknown
            };
            let next = after_attempt(&stopped, Report::LeaseLost, 0.5).next;
            assert!(matches!(next, Disposition::End { .. }), "{stop:?}");
        }
    }

    /// R3.11, R3.13: a graceful hand-back costs no attempt, and neither does waiting.
    #[test]
    fn a_release_and_a_wait_cost_nothing() {
        for (report, next) in [
            (Report::Released, Disposition::QueueAtHead),
            (Report::Waiting, Disposition::Wait),
        ] {
            let verdict = after_attempt(&facts(), report, 0.5);
            assert_eq!(verdict.next, next);
            assert!(!verdict.counts && !verdict.lost);
        }
    }
}
