//! Cancelling for a person (R3.10): what holds no lease ends at once, what runs is told to stop, in one transaction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tidegate_model::{Code, RunId, TenantId, run::RunState};
use tidegate_policy::retry::StopReason;

use super::{
    end_queued::{EndQueued, end},
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

/// Ends or stops runs that later ones of their schedule replace (R3.14); answers those that it reached. All runs that hold
/// no lease are ended together, so that trees are locked in one order.
pub(crate) async fn replace(
    tx: &mut PgConnection,
    runs: Vec<(TenantId, RunId)>,
    queue_max_age_ms: i64,
) -> Result<Vec<(TenantId, RunId)>, Error> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let ends: Vec<EndQueued> = runs
        .iter()
        .map(|(tenant, run)| EndQueued {
            tenant: tenant.clone(),
            run_id: *run,
            state: RunState::Cancelled,
            code: Code::Cancelled,
            detail: Some("replaced by the run of a later due time of its schedule".to_owned()),
        })
        .collect();
    let mut reached = end(tx, &ends, queue_max_age_ms).await?;
    let rest = runs.into_iter().filter(|run| !reached.contains(run));
    let mut by_tenant: BTreeMap<TenantId, Vec<RunId>> = BTreeMap::new();
    for (tenant, run) in rest {
        by_tenant.entry(tenant).or_default().push(run);
    }
    for (tenant, runs) in by_tenant {
        let told = stop(tx, tenant.as_str(), &runs, StopReason::Cancel).await?;
        reached.extend(told.into_iter().map(|run| (tenant.clone(), run)));
    }
    Ok(reached)
}

async fn cancel(
    tx: &mut PgConnection,
    tenant: &TenantId,
    runs: &[RunId],
    queue_max_age_ms: i64,
) -> Result<Cancelled, Error> {
    let mut cancelled = Cancelled {
        asked: runs.len() as u64,
        ..Cancelled::default()
    };
    if runs.is_empty() {
        return Ok(cancelled);
    }
    let ends: Vec<EndQueued> = runs
        .iter()
        .map(|run| EndQueued {
            tenant: tenant.clone(),
            run_id: *run,
            state: RunState::Cancelled,
            code: Code::Cancelled,
            detail: None,
        })
        .collect();
    let ended = end(tx, &ends, queue_max_age_ms).await?;
    let rest: Vec<RunId> = runs
        .iter()
        .copied()
        .filter(|run| !ended.iter().any(|(_, ended)| ended == run))
        .collect();
    cancelled.ended = ended.len() as u64;
    if !rest.is_empty() {
        let told = stop(tx, tenant.as_str(), &rest, StopReason::Cancel).await?;
        cancelled.requested = told.len() as u64;
    }
    Ok(cancelled)
}
