//! Requeue (R3.11): puts a failed run back, or starts one now that waits for its time. The claim checks everything again.

use tidegate_model::{Code, RunId, api::RunView, run::RunState};

use crate::{Engine, Error, Principal};

/// Queues a failed, scheduled or backed-off run.
pub async fn requeue(engine: &Engine, principal: &Principal, run: RunId) -> Result<RunView, Error> {
    let before = super::get::get(engine, principal, run).await?;
    let tenant = engine.store().tenant(principal.require_tenant()?);
    let by = principal.key_id.to_string();
    let reopened = tenant
        .reopen(vec![run], by, engine.queue_max_age_ms())
        .await?;
    if reopened.is_empty() {
        return Err(Error::refused(
            Code::StateConflict,
            match before.state {
                RunState::Failed => "the run's deadline has passed; submit it anew".to_owned(),
                state => format!(
                    "the run is {state}; only failed runs, and queued ones that wait for their time or back off, can be \
                     requeued"
                ),
            },
        ));
    }
    engine.work_changed().await;
    super::get::get(engine, principal, run).await
}
