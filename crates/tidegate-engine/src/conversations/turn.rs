//! `POST /v1/conversations/{id}/turns`: with the first turn of a conversation (`create`) the only way to a run of kind
//! `conversation_turn` (R3.2, R3.7).

use serde_json::json;
use tidegate_model::{
    Capability, ConversationId,
    api::{RunBudget, SubmitTurn, TurnAccepted},
    run::RunKind,
};
use tidegate_store::runs::Turn;

use crate::{
    Engine, Error, Principal,
    runs::accept::{Wanted, accept},
};

/// Accepts a turn; turns of one conversation run one at a time, in order.
pub async fn submit_turn(
    engine: &Engine,
    principal: &Principal,
    conversation_id: ConversationId,
    request: SubmitTurn,
    idempotency_key: Option<String>,
) -> Result<TurnAccepted, Error> {
    let mut wanted = wanted(engine, principal, conversation_id, request)?;
    wanted.idempotency_key = idempotency_key;
    let accepted = accept(engine, principal, wanted).await?;
    let repeated = accepted.repeated;
    let run = accepted.view(engine, principal).await?;
    Ok(TurnAccepted {
        run_id: run.run_id,
        state: run.state,
        repeated,
    })
}

/// The run that a turn asks for, without a key for repeats.
pub(super) fn wanted(
    engine: &Engine,
    principal: &Principal,
    conversation_id: ConversationId,
    request: SubmitTurn,
) -> Result<Wanted, Error> {
    if request.input.is_empty() {
        return Err(Error::invalid("input", "a turn needs a text"));
    }
    let user = principal.user_of(request.user.clone())?;
    let route = format!("turns/{conversation_id}");
    let request_digest = engine.body_digest(&route, &(&user, &request))?;
    let message = json!({"text": request.input});
    Ok(Wanted {
        kind: RunKind::ConversationTurn,
        capability: request.capability.unwrap_or_else(Capability::chat),
        needs: request.requirements.unwrap_or_default(),
        input: message.clone(),
        service_class: request.service_class,
        priority: None,
        deadline: request.deadline,
        run_at: None,
        max_attempts: None,
        budget: RunBudget::default(),
        turn: Some(Turn {
            conversation_id,
            message,
        }),
        user,
        idempotency_key: None,
        request_digest,
    })
}
