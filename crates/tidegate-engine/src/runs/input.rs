//! `POST /v1/runs/{id}/inputs`: a person answers what a run asked (R3.15).

use tidegate_model::{
    Code, RunId,
    api::{AnswerInput, RunView},
};
use tidegate_store::attempts::waits::{Answered, Answerer};

use super::accept::refuse_unstorable;
use crate::{Engine, Error, Principal};

/// Takes an answer and queues the run at the head of its tenant; the same answer to the same question again changes
/// nothing.
pub async fn answer(
    engine: &Engine,
    principal: &Principal,
    run: RunId,
    request: AnswerInput,
) -> Result<RunView, Error> {
    let value =
        serde_json::to_value(&request).map_err(|_| Error::Internal { what: "an answer" })?;
    refuse_unstorable("$", &value)?;
    let before = super::get::get(engine, principal, run).await?;
    let tenant = engine.store().tenant(principal.require_tenant()?);
    let by = Answerer {
        key: principal.key_id,
        user: principal.user.clone(),
    };
    let answered = tenant
        .answer_input(
            run,
            request,
            by,
            engine.queue_max_age_ms(),
            principal.intent.as_ref(),
        )
        .await?;
    match answered {
        Answered::Taken => {
            engine.events().nudge(tenant.tenant(), run);
            engine.work_changed();
        }
        Answered::Repeated => {}
        Answered::Differs => {
            return Err(Error::refused(
                Code::StateConflict,
                "this question was answered otherwise before",
            ));
        }
        Answered::NotAsked => {
            return Err(Error::refused(
                Code::StateConflict,
                format!(
                    "the run is {} and does not wait for this answer; `waitingFor` of the run says what it waits for",
                    before.state
                ),
            ));
        }
        Answered::Unfit { field, detail } => return Err(Error::invalid(field, detail)),
    }
    let view = super::get::get(engine, principal, run).await?;
    Ok(RunView {
        repeated: principal.is_replayed(),
        ..view
    })
}
