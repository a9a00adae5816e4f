//! Cancelling for a person (R3.10): what holds no lease ends at once, what runs is told to stop, in one transaction.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tidegate_model::{Code, RunId, TenantId, run::RunState};
use tidegate_policy::retry::StopReason;

use super::{
    end_queued::{EndQueued, Ends, end_locked, lock_above},
    renew::stop,
};
use crate::{
    Error, Intent, TenantStore,
    repeats::{Outcome, Progress, Step},
    written::Written,
};

/// What a cancel did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// How many runs it was asked of.
    pub asked: u64,
    /// Runs that ended at once.
    pub ended: u64,
    /// Running ones that were told.
    pub requested: u64,
}

impl Outcome for Cancelled {
    /// A run that moved between queue and lease meanwhile was not caught; who asks again will.
    fn is_refusal(&self) -> bool {
        self.asked > 0 && self.ended + self.requested == 0
    }
}

impl TenantStore {
    /// Cancels runs of the tenant. With none, only the intent is kept: its runs had ended.
    pub async fn cancel_runs(
        &self,
        runs: Vec<RunId>,
        queue_max_age_ms: i64,
        intent: Option<&Intent>,
    ) -> Result<Cancelled, Error> {
        let tenant = self.tenant().clone();
        let cancelled = self
            .store()
            .once("cancel_runs", intent, move |tx| {
                let (tenant, runs) = (tenant.clone(), runs.clone());
                Box::pin(async move {
                    let cancelled = cancel(tx, &tenant, &runs, queue_max_age_ms).await?;
                    Ok(Written::unchanged(cancelled))
                })
            })
            .await?;
        Ok(cancelled.value)
    }

    /// The same as one step of a write in several; answers how far that has come.
    pub async fn cancel_step(
        &self,
        runs: Vec<RunId>,
        queue_max_age_ms: i64,
        step: Step,
    ) -> Result<Progress, Error> {
        let tenant = self.tenant().clone();
        self.store()
            .transaction("cancel_step", move |tx| {
                let (tenant, runs, step) = (tenant.clone(), runs.clone(), step.clone());
                Box::pin(async move {
                    if let Some(overtaken) = step.overtaken(tx).await? {
                        return Ok(overtaken);
                    }
                    let cancelled = cancel(tx, &tenant, &runs, queue_max_age_ms).await?;
                    step.done(tx, cancelled.ended, cancelled.requested).await
                })
            })
            .await
    }
}

/// Ends or stops runs that later ones of their schedule replace (R3.14); answers those that it reached.
pub(crate) async fn replace(
    tx: &mut PgConnection,
    runs: Vec<(TenantId, RunId)>,
    queue_max_age_ms: i64,
) -> Result<Vec<(TenantId, RunId)>, Error> {
    let detail = "replaced by the run of a later due time of its schedule";
    let mut reached = end_or_stop(tx, runs, Some(detail), queue_max_age_ms).await?;
    reached.ended.append(&mut reached.told);
    Ok(reached.ended)
}

async fn cancel(
    tx: &mut PgConnection,
    tenant: &TenantId,
    runs: &[RunId],
    queue_max_age_ms: i64,
) -> Result<Cancelled, Error> {
    let named = runs.iter().map(|run| (tenant.clone(), *run)).collect();
    let reached = end_or_stop(tx, named, None, queue_max_age_ms).await?;
    Ok(Cancelled {
        asked: runs.len() as u64,
        ended: reached.ended.len() as u64,
        requested: reached.told.len() as u64,
    })
}

/// Runs that a cancel has reached.
#[derive(Default)]
struct Reached {
    ended: Vec<(TenantId, RunId)>,
    told: Vec<(TenantId, RunId)>,
}

/// Tells those that run to stop and ends the others.
///
/// Leases come first: an end marks leases of descendants, wherever they stand in the order, and nothing may wait for a
/// lease while it holds those. What is claimed between the two is told afterwards; nobody renews so young a lease, and so
/// nobody holds it.
async fn end_or_stop(
    tx: &mut PgConnection,
    runs: Vec<(TenantId, RunId)>,
    detail: Option<&str>,
    queue_max_age_ms: i64,
) -> Result<Reached, Error> {
    if runs.is_empty() {
        return Ok(Reached::default());
    }
    let end_of = |(tenant, run_id): &(TenantId, RunId)| EndQueued {
        tenant: tenant.clone(),
        run_id: *run_id,
        state: RunState::Cancelled,
        code: Code::Cancelled,
        detail: detail.map(str::to_owned),
    };
    let all: Vec<EndQueued> = runs.iter().map(end_of).collect();
    lock_above(tx, &Ends::of(&all)).await?;
    let mut told = stop(tx, &runs, StopReason::Cancel).await?;
    let without = |runs: Vec<(TenantId, RunId)>, reached: &[(TenantId, RunId)]| {
        let reached: HashSet<RunId> = reached.iter().map(|(_, run)| *run).collect();
        let left = runs.into_iter().filter(|(_, run)| !reached.contains(run));
        left.collect::<Vec<_>>()
    };
    let left = without(runs, &told);
    let ends: Vec<EndQueued> = left.iter().map(end_of).collect();
    let ended = end_locked(tx, &Ends::of(&ends), queue_max_age_ms).await?;
    let moved = without(left, &ended);
    if !moved.is_empty() {
        told.extend(stop(tx, &moved, StopReason::Cancel).await?);
    }
    Ok(Reached { ended, told })
}
