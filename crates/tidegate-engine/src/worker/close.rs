//! `complete`, `fail` and `release`: the three ways in which a holder ends its attempt.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;
use tidegate_model::{
    Code, Fence, RunId, TenantId,
    api::{AttemptAnswer, CompleteRun, FailRun, LeaseRef, MessageRole, NewMessage, ReleaseRun},
    limits,
    run::{AttemptOutcome, ParkReason, QuotaBucket},
};
use tidegate_policy::{
    estimates,
    retry::{Disposition, Report, after_attempt},
};
use tidegate_store::{
    attempts::{
        close::{CloseReport, Closed, Closer, Rules, Step},
        waits::Wait,
    },
    read::runs::{RunPlace, RunRow},
};

use super::held::lease_lost;
use crate::{
    Engine, Error, Principal,
    claims::{AT_THE_HEAD, LaneHint, Share},
    combine::{Answers, all_or_each, count},
    runs::accept::refuse_unstorable,
};

/// The longest detail that a worker may give, in characters.
const DETAIL_MAX: usize = 2_000;
/// The most messages that a turn may add.
const MESSAGES_MAX: usize = 500;
/// The longest wait that a worker may ask for, in milliseconds (one day).
const RETRY_AFTER_MAX_MS: u64 = 24 * 3_600_000;
/// The most tokens that one attempt may report.
pub(super) const TOKENS_MAX: i64 = limits::BUDGET_MAX;

/// Completes the run.
pub async fn complete(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: CompleteRun,
) -> Result<AttemptAnswer, Error> {
    refuse_unstorable("result", &request.result)?;
    let size = serde_json::to_vec(&request.result).map_or(usize::MAX, |bytes| bytes.len());
    if size > limits::RESULT_MAX_BYTES {
        return Err(Error::refused(
            Code::PayloadTooLarge,
            format!(
                "a result has at most {} bytes; store it elsewhere and return a reference",
                limits::RESULT_MAX_BYTES
            ),
        ));
    }
    let ending = Ending {
        lease: LeaseRef {
            run_id,
            fence: request.fence,
        },
        tokens: request.usage.tokens,
        detail: None,
        result: Some(request.result),
        messages: attempt_messages(request.messages)?,
        wait: None,
    };
    ending.close(engine, principal, Report::Completed).await
}

/// Messages that an attempt adds to its conversation, checked.
pub(super) fn attempt_messages(given: Vec<NewMessage>) -> Result<Vec<(MessageRole, Value)>, Error> {
    if given.len() > MESSAGES_MAX {
        return Err(Error::invalid(
            "messages",
            format!("at most {MESSAGES_MAX}"),
        ));
    }
    let mut messages = Vec::with_capacity(given.len());
    for (index, message) in given.into_iter().enumerate() {
        if !matches!(message.role, MessageRole::Assistant | MessageRole::Tool) {
            return Err(Error::invalid(
                format!("messages[{index}].role"),
                "a worker may add messages of assistant and tool only",
            ));
        }
        refuse_unstorable(&format!("messages[{index}].content"), &message.content)?;
        messages.push((message.role, message.content));
    }
    Ok(messages)
}

/// Fails the attempt; the run's stored policy says what follows.
pub async fn fail(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: FailRun,
) -> Result<AttemptAnswer, Error> {
    if let Some(detail) = &request.detail {
        if detail.chars().count() > DETAIL_MAX {
            return Err(Error::invalid(
                "detail",
                format!("at most {DETAIL_MAX} characters"),
            ));
        }
        if detail.contains('\0') {
            return Err(Error::invalid(
                "detail",
                "texts must not contain the NUL character (U+0000)",
            ));
        }
    }
    if !Code::OF_WORKERS.contains(&request.code) {
        let allowed: Vec<&str> = Code::OF_WORKERS.iter().map(|code| code.as_str()).collect();
        return Err(Error::invalid(
            "code",
            format!(
                "{} is the platform's own; a worker says one of {}",
                request.code,
                allowed.join(", ")
            ),
        ));
    }
    let retry_after_ms = request.retry_after_ms.unwrap_or(0).min(RETRY_AFTER_MAX_MS);
    let report = Report::Failed {
        code: request.code,
        retryable: request.retryable,
        retry_after_ms: i64::try_from(retry_after_ms).unwrap_or(0),
    };
    let ending = Ending {
        lease: LeaseRef {
            run_id,
            fence: request.fence,
        },
        tokens: request.usage.tokens,
        detail: request.detail,
        result: None,
        messages: Vec::new(),
        wait: None,
    };
    ending.close(engine, principal, report).await
}

/// Hands the run back before its first effect.
pub async fn release(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: ReleaseRun,
) -> Result<AttemptAnswer, Error> {
    let ending = Ending {
        lease: LeaseRef {
            run_id,
            fence: request.fence,
        },
        tokens: request.usage.tokens,
        detail: None,
        result: None,
        messages: Vec::new(),
        wait: None,
    };
    ending.close(engine, principal, Report::Released).await
}

/// What a holder says at the end of its attempt.
pub(super) struct Ending {
    pub(super) lease: LeaseRef,
    pub(super) tokens: i64,
    pub(super) detail: Option<String>,
    pub(super) result: Option<Value>,
    pub(super) messages: Vec<(MessageRole, Value)>,
    pub(super) wait: Option<Wait>,
}

impl Ending {
    /// Ends the attempt. Said again, after an answer that was lost, it is answered again.
    pub(super) async fn close(
        self,
        engine: &Engine,
        principal: &Principal,
        report: Report,
    ) -> Result<AttemptAnswer, Error> {
        let lease = self.lease;
        let closed = Box::pin(self.close_once(engine, principal, report)).await;
        or_repeated(engine, principal, lease, report, closed).await
    }

    pub(super) async fn close_once(
        self,
        engine: &Engine,
        principal: &Principal,
        report: Report,
    ) -> Result<AttemptAnswer, Error> {
        if !(0..=TOKENS_MAX).contains(&self.tokens) {
            return Err(Error::invalid("usage.tokens", format!("0 to {TOKENS_MAX}")));
        }
        let lease = engine.held_one(principal, self.lease).await?;
        let report = CloseReport {
            lease,
            report,
            detail: self.detail,
            tokens: self.tokens,
            result: self.result,
            messages: self.messages,
            wait: self.wait,
        };
        let run_id = self.lease.run_id;
        // A run of a tree is closed in a transaction of its own: what goes wrong there is no matter of a shared batch.
        let alone = report.wait.is_some() || engine.in_trees().get(&run_id).is_some();
        let closed = if alone {
            // Apart, so that every other ending is small while it waits for its batch.
            let close = Box::pin(close_all(engine, vec![report], Closer::Holder));
            close.await?.pop()
        } else {
            engine
                .endings()
                .call(engine, Engine::endings, end_all, report)
                .await?
        };
        let closed = closed.ok_or_else(lease_lost)?;
        if alone {
            engine.in_trees().remove(&run_id);
        }
        Ok(AttemptAnswer {
            state: closed.state(),
            retry_in_ms: match closed.verdict.next {
                Disposition::End { .. } | Disposition::Wait | Disposition::Review => None,
                Disposition::QueueAtHead => Some(0),
                Disposition::BackOff { delay_ms } => Some(delay_ms),
            },
        })
    }
}

/// Where a lease is lost because its holder has ended the attempt by the same kind of report before, the answer is where
/// the run is now; the first answer may not have arrived. What was refused is looked at only here, so that no other write
/// pays for it. An attempt that was stopped or taken over was not ended by its holder and stays lost.
pub(super) async fn or_repeated(
    engine: &Engine,
    principal: &Principal,
    lease: LeaseRef,
    report: Report,
    answer: Result<AttemptAnswer, Error>,
) -> Result<AttemptAnswer, Error> {
    let lost = match answer {
        Err(error) if error.code() == Code::LeaseLost => error,
        other => return other,
    };
    let pool = principal.require_pool()?;
    let fleet = engine.store().fleet();
    let Some(ended) = fleet.ended_attempt(pool, lease.run_id, lease.fence).await? else {
        return Err(lost);
    };
    let same = match report {
        Report::Completed => ended.outcome == AttemptOutcome::Succeeded,
        Report::Failed { code, .. } => {
            ended.outcome == AttemptOutcome::Failed && ended.code == Some(code)
        }
        Report::Waiting => ended.outcome == AttemptOutcome::Waiting,
        // Who has handed a run back has no more to do with it.
        Report::Released | Report::LeaseLost | Report::FencedOff => false,
    };
    if !same {
        return Err(lost);
    }
    let runs = engine.store().tenant(&ended.tenant);
    let run = runs.runs(&[lease.run_id]).await?.pop().ok_or(lost)?;
    Ok(AttemptAnswer {
        state: run.state(),
        retry_in_ms: match report {
            Report::Failed { .. } => left_of_backoff(&run),
            _ => None,
        },
    })
}

/// What is left of the time that a failed attempt's run waits before it is tried again; nothing where it is not.
fn left_of_backoff(run: &RunRow) -> Option<i64> {
    match &run.place {
        RunPlace::Queued(_) => Some(0),
        RunPlace::Parked(parked) if parked.why == ParkReason::RetryBackoff => {
            let left = parked.due.map(|due| (due - run.read_at).num_milliseconds());
            Some(left.unwrap_or(0).max(0))
        }
        RunPlace::Parked(_) | RunPlace::Running(_) | RunPlace::Ended(_) => None,
    }
}

/// What becomes of the attempts that their holders end at the same time; nothing where a lease is lost. They are closed step
/// by step, and an error in one step is no matter of those that an earlier one has closed.
fn end_all(engine: Engine, reports: Vec<CloseReport>) -> Answers<Option<Closed>> {
    Box::pin(async move {
        metrics::histogram!("tidegate_close_batch_runs").record(count(reports.len()));
        let mut answers: Vec<Result<Option<Closed>, Error>> =
            reports.iter().map(|_| Ok(None)).collect();
        let mut places: Vec<usize> = (0..reports.len()).collect();
        let mut left: Arc<[CloseReport]> = reports.into();
        for step in Step::ALL {
            let outcomes = all_or_each(Arc::clone(&left), |batch| {
                let engine = engine.clone();
                Box::pin(async move { end(&engine, step, batch).await })
            });
            let mut open = Vec::new();
            for (at, outcome) in outcomes.await.into_iter().enumerate() {
                if matches!(outcome, Ok(None)) {
                    open.push(at);
                } else {
                    answers[places[at]] = outcome;
                }
            }
            if open.is_empty() {
                break;
            }
            left = open.iter().map(|at| left[*at].clone()).collect();
            places = open.iter().map(|at| places[*at]).collect();
        }
        answers
    })
}

/// The attempts that a step closed, in the place of the first report about each.
async fn end(
    engine: &Engine,
    step: Step,
    reports: Arc<[CloseReport]>,
) -> Result<Vec<Option<Closed>>, Error> {
    let mut outcomes: Vec<Option<Closed>> = reports.iter().map(|_| None).collect();
    let mut places: HashMap<(RunId, Fence), usize> = HashMap::new();
    for (place, report) in reports.iter().enumerate() {
        places
            .entry((report.lease.key.run_id, report.lease.fence))
            .or_insert(place);
    }
    let (fleet, rules) = (engine.store().fleet(), rules(engine));
    let closed = fleet
        .close_step(step, reports, Closer::Holder, &rules)
        .await?;
    tell(engine, &closed);
    for closed in closed {
        if let Some(place) = places.get(&(closed.key.run_id, closed.fence)) {
            outcomes[*place] = Some(closed);
        }
    }
    Ok(outcomes)
}

/// Closes attempts by the policy's verdict, and tells everybody whom it concerns.
pub(crate) async fn close_all(
    engine: &Engine,
    reports: impl Into<Arc<[CloseReport]>>,
    closer: Closer,
) -> Result<Vec<Closed>, Error> {
    let fleet = engine.store().fleet();
    let outcomes = fleet
        .close_attempts(reports, closer, &rules(engine))
        .await?;
    tell(engine, &outcomes);
    Ok(outcomes)
}

fn rules(engine: &Engine) -> Rules {
    Rules {
        scope: engine.settings().execution_scope.clone(),
        decide: Arc::new(|facts, report| after_attempt(facts, report, crate::clock::jitter())),
        queue_max_age_ms: engine.queue_max_age_ms(),
    }
}

/// Tells everybody whom the end of attempts concerns.
fn tell(engine: &Engine, outcomes: &[Closed]) {
    if outcomes.is_empty() {
        return;
    }
    for run in outcomes {
        engine.lease_keys().remove(&run.key.run_id);
        engine.events().nudge(&run.key.tenant, run.key.run_id);
        metrics::counter!("tidegate_attempts_total", "outcome" => run.verdict.outcome.as_str())
            .increment(1);
        if run.verdict.next == Disposition::Review {
            metrics::counter!("tidegate_reviews_total").increment(1);
        }
        if let Some(ms) = run.stop_to_release_ms {
            metrics::histogram!("tidegate_stop_to_release_seconds").record(
                std::time::Duration::from_millis(u64::try_from(ms).unwrap_or(0)).as_secs_f64(),
            );
        }
    }
    settle(engine, outcomes);
    let freed: Vec<(QuotaBucket, TenantId)> = outcomes
        .iter()
        .map(|run| (run.key.bucket, run.key.tenant.clone()))
        .collect();
    let queued: Vec<LaneHint> = outcomes.iter().flat_map(queued_by).collect();
    engine.work_moved(&queued, &freed);
    if outcomes.iter().any(|run| run.gave_back) {
        engine.resources_changed();
    }
    if outcomes.iter().any(|run| run.in_tree) {
        // A parent may have been woken, which stands at the head of a lane.
        engine.work_changed();
    }
}

/// Settles what the claims charged by estimate (R3.12).
fn settle(engine: &Engine, outcomes: &[Closed]) {
    let claims = engine.claims();
    let tiers = claims.tiers();
    let mut book = claims.book.lock();
    for run in outcomes {
        let cost = estimates::cost(run.attempt_ms, run.tokens);
        let weight = Share::of(&tiers, &run.key.tenant).weight;
        book.settle(&run.key.tenant, &run.capability, run.charged, cost, weight);
    }
}

/// What the end of an attempt has put into the queue: the run itself, or the next turn of its conversation.
fn queued_by(run: &Closed) -> Vec<LaneHint> {
    let created_ms = crate::clock::now().timestamp_millis();
    let mut hints = Vec::new();
    if run.woken || matches!(run.verdict.next, Disposition::QueueAtHead) {
        hints.push(LaneHint {
            lane: run.lane.clone(),
            capability: run.capability.clone(),
            place: AT_THE_HEAD,
            created_ms,
        });
    }
    if let Some(turn) = &run.next_turn {
        hints.push(LaneHint {
            lane: turn.lane.clone(),
            capability: turn.capability.clone(),
            place: AT_THE_HEAD,
            created_ms,
        });
    }
    hints
}
