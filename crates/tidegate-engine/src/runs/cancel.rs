//! Cancel (R3.10): a queued run ends at once; a running one is told, and fenced off after the grace.

use tidegate_model::{Code, RunId, api::RunView, run::RunState};
use tidegate_policy::retry::StopReason;

use crate::{Engine, Error, Principal};

/// A run moves between queue and lease while we look for it; each round sees a later state, so a few suffice.
const ROUNDS_MAX: u32 = 5;

/// Cancels a run; one that has ended already is answered as it is.
pub async fn cancel(engine: &Engine, principal: &Principal, run: RunId) -> Result<RunView, Error> {
    for _ in 0..ROUNDS_MAX {
        let view = super::get::get(engine, principal, run).await?;
        if view.state.is_ended() || view.cancel_requested {
            return Ok(view);
        }
        let outcome = cancel_some(engine, principal, vec![run]).await?;
        if outcome.ended + outcome.requested > 0 {
            return super::get::get(engine, principal, run).await;
        }
    }
    Err(Error::refused(
        Code::StateConflict,
        "the run kept changing its state while it was being cancelled; try again",
    ))
}

/// How many runs ended at once, and how many running ones were told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cancelled {
    pub ended: u64,
    pub requested: u64,
}

/// Cancels runs of the caller's tenant, whatever of the two each needs.
pub(crate) async fn cancel_some(
    engine: &Engine,
    principal: &Principal,
    runs: Vec<RunId>,
) -> Result<Cancelled, Error> {
    let tenant = engine.store().tenant(principal.require_tenant()?);
    let ends = runs
        .iter()
        .map(|run| (*run, RunState::Cancelled, Code::Cancelled, None))
        .collect();
    let ended = tenant.end_queued(ends, engine.queue_max_age_ms()).await?;
    let rest: Vec<RunId> = runs
        .into_iter()
        .filter(|run| !ended.contains(run))
        .collect();
    let requested = if rest.is_empty() {
        Vec::new()
    } else {
        tenant.request_stop(&rest, StopReason::Cancel).await?
    };
    if !ended.is_empty() {
        // The next turns of their conversations may have come up.
        engine.work_changed();
    }
    Ok(Cancelled {
        ended: ended.len() as u64,
        requested: requested.len() as u64,
    })
}
