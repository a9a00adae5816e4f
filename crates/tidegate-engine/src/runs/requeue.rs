//! Requeue (R3.11): puts a failed run back, or starts one now that waits for its time. The claim checks everything again.

use tidegate_model::{Code, RunId, api::RunView, run::RunState};
use tidegate_policy::reasons::review_remedy;

use crate::{Engine, Error, Principal};

/// Queues a failed, scheduled or backed-off run.
pub async fn requeue(engine: &Engine, principal: &Principal, run: RunId) -> Result<RunView, Error> {
    let before = super::get::get(engine, principal, run).await?;
    let tenant = engine.store().tenant(principal.require_tenant()?);
    let by = principal.key_id.to_string();
    let reopened = tenant
        .reopen(
            vec![run],
            by,
            engine.queue_max_age_ms(),
            principal.intent.as_ref(),
        )
        .await?;
    if reopened.is_empty() {
        return Err(Error::refused(
            Code::StateConflict,
            match before.state {
                RunState::Failed if budget_spent(&before) => {
                    "the run's budget is spent, and stays so over all attempts; submit it anew with a larger one"
                        .to_owned()
                }
                RunState::Failed => "the run's deadline has passed; submit it anew".to_owned(),
                RunState::Review => format!("the run is in review: {}", review_remedy(run)),
                state => format!(
                    "the run is {state}; only failed runs, and queued ones that wait for their time or back off, can be \
                     requeued"
                ),
            },
        ));
    }
    let repeated = principal.is_replayed();
    if !repeated {
        engine.work_changed();
    }
    let view = super::get::get(engine, principal, run).await?;
    Ok(RunView { repeated, ..view })
}

fn budget_spent(run: &RunView) -> bool {
    let spent = |used: i64, budget: Option<i64>| budget.is_some_and(|budget| used >= budget);
    spent(run.spent_tokens, run.budget.tokens) || spent(run.spent_ms, run.budget.execution_ms)
}
