//! `POST /v1/worker/runs/{id}/context`: the conversation of a turn, and what earlier attempts left, for its executor.

use tidegate_model::{
    RunId,
    api::{ContextAnswer, ContextRequest, LeaseRef},
    limits,
};

use super::held::lease_lost;
use crate::{Engine, Error, Principal, conversations::messages::view};

/// The latest messages of earlier turns and of this one (none for a run that is no turn), and the effects of earlier
/// attempts with the messages that led to them (R4.5).
pub async fn context(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: ContextRequest,
) -> Result<ContextAnswer, Error> {
    if !(1..=limits::PAGE_MAX).contains(&request.limit) {
        return Err(Error::invalid(
            "limit",
            format!("1 to {}", limits::PAGE_MAX),
        ));
    }
    let lease = engine
        .held_one(
            principal,
            LeaseRef {
                run_id,
                fence: request.fence,
            },
        )
        .await?;
    let fleet = engine.store().fleet();
    if !fleet
        .is_held(&engine.settings().execution_scope, &lease)
        .await?
    {
        return Err(lease_lost());
    }
    let store = engine.store().tenant(&lease.key.tenant);
    let effects = store.effects(run_id).await?;
    let earlier = if effects.is_empty() {
        Vec::new()
    } else {
        store.earlier_messages(run_id).await?
    };
    let messages = store
        .turn_context(run_id, i64::from(request.limit))
        .await?
        .into_iter()
        .map(view)
        .collect();
    Ok(ContextAnswer {
        messages,
        effects,
        earlier,
    })
}
