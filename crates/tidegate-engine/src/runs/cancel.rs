//! Cancel (R3.10): a queued run ends at once; a running one is told, and fenced off after the grace.

use tidegate_model::{Code, RunId, api::RunView};

use crate::{Engine, Error, Principal};

/// A run moves between queue and lease while we look for it; each round sees a later state, so a few suffice.
const ROUNDS_MAX: u32 = 5;

/// Cancels a run; one that has ended already is answered as it is.
pub async fn cancel(engine: &Engine, principal: &Principal, run: RunId) -> Result<RunView, Error> {
    let tenant = engine.store().tenant(principal.require_tenant()?);
    for _ in 0..ROUNDS_MAX {
        let view = super::get::get(engine, principal, run).await?;
        let over = view.state.is_ended() || view.cancel_requested;
        if over && principal.intent.is_none() {
            return Ok(view);
        }
        let runs = if over { Vec::new() } else { vec![run] };
        let cancelled = tenant
            .cancel_runs(runs, engine.queue_max_age_ms(), principal.intent.as_ref())
            .await?;
        let repeated = principal.is_replayed();
        if cancelled.ended > 0 && !repeated {
            // The next turn of its conversation may have come up.
            engine.work_changed();
        }
        if over || repeated || cancelled.ended + cancelled.requested > 0 {
            let view = super::get::get(engine, principal, run).await?;
            return Ok(RunView { repeated, ..view });
        }
    }
    Err(Error::refused(
        Code::StateConflict,
        "the run kept changing its state while it was being cancelled; try again",
    ))
}
