//! `GET /v1/runs/{id}/explain`: why a run is where it is, and where its time went (R3.9, R21.2).
//!
//! Nothing is decided again: reasons are what was observed, times are what was written down.

mod timeline;

use tidegate_model::{
    RunId,
    api::{AttemptView, RunExplain, WaitByCause},
};
use tidegate_policy::reasons::waits::{self, Held, Interval};
use tidegate_store::{
    TenantStore,
    read::{
        explain::AttemptRow,
        runs::{RunPlace, RunRow, Running},
    },
};

use self::timeline::Timeline;
use super::view::view;
use crate::{Engine, Error, Principal};

/// Explains a run of the caller's tenant.
pub async fn explain(
    engine: &Engine,
    principal: &Principal,
    run: RunId,
) -> Result<RunExplain, Error> {
    let seen = super::get::seen(engine, principal, run).await?;
    let store = engine.store().tenant(principal.require_tenant()?);
    let attempts = store.attempts(run).await?;
    let effects = store.effects(run).await?;
    let waits = waits(&store, &seen.row, &attempts).await?;
    let ahead_in_lane = match seen.row.place {
        RunPlace::Queued(queued) => Some(
            store
                .ahead_in_lane(&seen.row.scope, &seen.row.lane, queued)
                .await?,
        ),
        _ => None,
    };
    let mut attempts: Vec<AttemptView> = attempts.into_iter().map(ended_attempt).collect();
    if let RunPlace::Running(running) = &seen.row.place {
        attempts.push(running_attempt(running));
    }
    Ok(RunExplain {
        run: view(&seen),
        reasons: seen.reasons,
        waits,
        attempts,
        effects,
        ahead_in_lane,
    })
}

async fn waits(
    store: &TenantStore,
    row: &RunRow,
    attempts: &[AttemptRow],
) -> Result<Vec<WaitByCause>, Error> {
    let requeues = store.requeues(row.run_id).await?;
    let pauses = store.pauses(row.run_id).await?;
    let Timeline { queued, parked } = timeline::of(row, attempts, &requeues, &pauses);
    let history = match (queued.first(), queued.last()) {
        (Some(_), Some(_)) => {
            store
                .lane_history(&row.scope, &row.lane, row.created_at, row.read_at)
                .await?
        }
        _ => Vec::new(),
    };
    let held: Vec<Held> = history
        .iter()
        .map(|wait| Held {
            code: wait.code,
            interval: Interval {
                from_ms: wait.from.timestamp_millis(),
                to_ms: wait.to.unwrap_or(row.read_at).timestamp_millis(),
            },
        })
        .collect();
    let mut waits = waits::by_cause(&queued, &held);
    for (code, interval) in parked {
        let wait = waits.entry(code).or_default();
        *wait += interval.to_ms - interval.from_ms;
    }
    let mut waits: Vec<WaitByCause> = waits
        .into_iter()
        .map(|(code, waited_ms)| WaitByCause { code, waited_ms })
        .collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited_ms));
    Ok(waits)
}

fn ended_attempt(row: AttemptRow) -> AttemptView {
    AttemptView {
        attempt: row.attempt,
        fence: row.fence,
        holder: holder(&row.holder, row.incarnation),
        pool: row.pool,
        started_at: row.started_at,
        ended_at: Some(row.ended_at),
        outcome: Some(row.outcome),
        code: row.code,
        lease_until: None,
        tokens: row.tokens,
    }
}

fn running_attempt(running: &Running) -> AttemptView {
    AttemptView {
        attempt: running.attempt,
        fence: running.fence,
        holder: holder(&running.holder, running.incarnation),
        pool: running.pool.clone(),
        started_at: running.started_at,
        ended_at: None,
        outcome: None,
        code: None,
        lease_until: Some(running.lease_until),
        tokens: running.used_tokens,
    }
}

fn holder(worker: &str, incarnation: i64) -> String {
    format!("{worker}#{incarnation}")
}
