//! From rows to what a caller sees: a run, and why it waits.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use tidegate_model::{
    RunId,
    api::{QueueReasonView, ReviewView, RunBudget, RunView, WaitView},
    contracts::Needs,
    run::{ParkReason, RunState},
};
use tidegate_policy::reasons::{self, Cause, ParkedFacts, WaitFacts, review_remedy};
use tidegate_store::{
    TenantStore,
    read::{
        explain::OpenWait,
        runs::{Parked, Queued, RunPlace, RunRow},
    },
};

use crate::{Engine, Error, lanes::causes::PoolsSeen};

/// A run with every cause that holds it back now, the shown one first.
pub(crate) struct Seen {
    pub row: RunRow,
    pub reasons: Vec<QueueReasonView>,
    /// What a person has to decide, while it is in review.
    pub review: Option<ReviewView>,
    /// What else its pool must have.
    pub needs: Option<Needs>,
}

/// Adds to each run why it waits.
///
/// What blocks a lane is read as it was observed. A lane that has come up since the last observation is looked at now,
/// by the same rule, so that a run has its true reason from its first moment on.
pub(crate) async fn with_reasons(
    engine: &Engine,
    store: &TenantStore,
    rows: Vec<RunRow>,
) -> Result<Vec<Seen>, Error> {
    let mut classes: Vec<i32> = rows
        .iter()
        .filter(|row| matches!(row.place, RunPlace::Queued(_)))
        .map(|row| row.lane.class)
        .collect();
    classes.sort_unstable();
    classes.dedup();
    let open = if classes.is_empty() {
        Vec::new()
    } else {
        store.open_waits(&classes).await?
    };
    let mut reviews = reviews(store, &rows).await?;
    let all: Vec<i32> = rows.iter().map(|row| row.lane.class).collect();
    engine.requirements(&all).await?;
    let mut pools: Option<PoolsSeen> = None;
    let mut seen = Vec::with_capacity(rows.len());
    for row in rows {
        let reasons = match &row.place {
            RunPlace::Running(_) | RunPlace::Ended(_) => Vec::new(),
            RunPlace::Parked(parked) => parked_reasons(&row, parked),
            RunPlace::Queued(queued) => {
                let observed = observed_reasons(&row, queued, &open);
                if observed.is_empty() {
                    let pools = match &mut pools {
                        Some(pools) => pools,
                        none => none.insert(PoolsSeen::look(engine).await?),
                    };
                    looked_at(store, &row, queued, pools).await?
                } else {
                    observed
                }
            }
        };
        let review = reviews.remove(&row.run_id);
        seen.push(Seen {
            needs: engine.needs_of(row.lane.class),
            row,
            reasons,
            review,
        });
    }
    Ok(seen)
}

/// Of the runs in review, what a person has to decide.
async fn reviews(
    store: &TenantStore,
    rows: &[RunRow],
) -> Result<HashMap<RunId, ReviewView>, Error> {
    let since: HashMap<RunId, DateTime<Utc>> = rows
        .iter()
        .filter_map(|row| match &row.place {
            RunPlace::Parked(parked) if parked.why == ParkReason::Review => {
                Some((row.run_id, parked.parked_at))
            }
            _ => None,
        })
        .collect();
    if since.is_empty() {
        return Ok(HashMap::new());
    }
    let runs: Vec<RunId> = since.keys().copied().collect();
    let mut effects = store.unknown_effects(&runs).await?;
    Ok(since
        .into_iter()
        .map(|(run, since)| {
            let review = ReviewView {
                since,
                effects: effects.remove(&run).unwrap_or_default(),
                remedy: review_remedy(run),
            };
            (run, review)
        })
        .collect())
}

fn parked_reasons(row: &RunRow, parked: &Parked) -> Vec<QueueReasonView> {
    let cause = reasons::parked(&ParkedFacts {
        why: parked.why,
        due: parked.due,
        run_id: row.run_id,
        conversation_id: row.conversation_id,
        active_run: parked.active_run,
        active_state: active_state(parked),
        attempts: row.attempts,
        max_attempts: row.max_attempts,
        last_code: parked.last_code,
    });
    cause
        .map(|cause| reason(&cause, parked.parked_at))
        .into_iter()
        .collect()
}

/// What the turn in front does; nothing where it is not known to be parked.
fn active_state(parked: &Parked) -> Option<RunState> {
    parked.active_run?;
    match parked.active_parked {
        Some(ParkReason::Waiting) => Some(RunState::Waiting),
        Some(ParkReason::Review) => Some(RunState::Review),
        Some(ParkReason::ConversationBusy | ParkReason::Scheduled | ParkReason::RetryBackoff) => {
            Some(RunState::Queued)
        }
        None => None,
    }
}

fn waiting_for(row: &RunRow) -> Option<WaitView> {
    let RunPlace::Parked(parked) = &row.place else {
        return None;
    };
    let wait = parked.wait.as_ref()?;
    let ask_no = wait.ask.is_some().then_some(wait.ask_no);
    let remedy = reasons::waiting(&WaitFacts {
        run_id: row.run_id,
        on: wait.on,
        mode: wait.mode,
        open: &wait.open,
        ask: wait.ask.as_ref().map(|ask| ask.kind),
        until: parked.due,
    });
    Some(WaitView {
        on: wait.on,
        since: parked.parked_at,
        mode: wait.mode,
        runs: wait.open.clone(),
        ask: wait.ask.clone(),
        ask_no,
        until: parked.due,
        remedy,
    })
}

fn observed_reasons(row: &RunRow, queued: &Queued, open: &[OpenWait]) -> Vec<QueueReasonView> {
    let mut reasons: Vec<QueueReasonView> = open
        .iter()
        .filter(|open| open.lane == row.lane && open.scope == row.scope)
        .filter_map(|open| {
            let cause = Cause::from_stored(open.wait.code, &open.wait.facts)?;
            Some(reason(&cause, open.wait.from.max(queued.queued_at)))
        })
        .collect();
    reasons.sort_by_key(|reason| reason.code.rank());
    reasons
}

async fn looked_at(
    store: &TenantStore,
    row: &RunRow,
    queued: &Queued,
    pools: &PoolsSeen,
) -> Result<Vec<QueueReasonView>, Error> {
    let Some(state) = store.lane_state(&row.scope, &row.lane).await? else {
        return Ok(Vec::new());
    };
    let causes = pools.causes(std::slice::from_ref(&state)).await?;
    Ok(causes
        .iter()
        .flatten()
        .map(|cause| reason(cause, queued.queued_at))
        .collect())
}

fn reason(cause: &Cause, since: DateTime<Utc>) -> QueueReasonView {
    QueueReasonView {
        code: cause.code(),
        facts: cause.facts(),
        since,
        remedy: cause.remedy(),
    }
}

/// The run as its tenant sees it.
pub(crate) fn view(seen: &Seen) -> RunView {
    let row = &seen.row;
    let (code, detail, result, ended_at) = match &row.place {
        RunPlace::Ended(ended) => (
            ended.code,
            ended.detail.clone(),
            ended.result.clone(),
            Some(ended.ended_at),
        ),
        RunPlace::Queued(_) | RunPlace::Running(_) | RunPlace::Parked(_) => {
            (None, None, None, None)
        }
    };
    RunView {
        requirements: seen.needs.clone(),
        run_id: row.run_id,
        tenant: row.lane.tenant.clone(),
        kind: row.kind,
        quota_bucket: row.lane.bucket,
        capability: row.capability.clone(),
        service_class: row.service_class,
        priority: row.priority,
        priority_source: row.priority_source,
        user: row.user.clone(),
        conversation_id: row.conversation_id,
        state: row.state(),
        code,
        detail,
        result,
        attempts: row.attempts,
        max_attempts: row.max_attempts,
        created_at: row.created_at,
        deadline: row.deadline,
        ended_at,
        budget: RunBudget {
            tokens: row.budget_tokens,
            execution_ms: row.budget_ms,
        },
        spent_tokens: row.spent_tokens,
        spent_ms: row.spent_ms,
        queue_reason: seen.reasons.first().cloned(),
        review: seen.review.clone(),
        waiting_for: waiting_for(row),
        parent_run_id: row.parent_run_id,
        root_run_id: row.parent_run_id.map(|_| row.root_run_id),
        schedule: row.schedule.clone(),
        cancel_requested: matches!(&row.place, RunPlace::Running(running) if running.cancel_requested),
        repeated: false,
    }
}
