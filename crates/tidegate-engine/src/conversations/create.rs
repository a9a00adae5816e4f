//! `POST /v1/conversations`.

use tidegate_model::{
    ConversationId,
    api::{ConversationView, CreateConversation, SubmitTurn, TurnAccepted},
    run::RunState,
};
use tidegate_store::runs::{Begun, FirstTurn};

use super::{list::view, turn::wanted};
use crate::{
    Engine, Error, Principal,
    claims::LaneHint,
    runs::accept::{deadline_passed, lane_of, prepared, tenant_inactive},
};

/// The longest title, in characters.
const TITLE_MAX: usize = 200;

/// Begins a conversation.
pub async fn create_conversation(
    engine: &Engine,
    principal: &Principal,
    request: CreateConversation,
) -> Result<ConversationView, Error> {
    let tenant = principal.require_tenant()?;
    if let Some(title) = &request.title {
        if title.chars().count() > TITLE_MAX {
            return Err(Error::invalid(
                "title",
                format!("at most {TITLE_MAX} characters"),
            ));
        }
        if title.contains('\0') {
            return Err(Error::invalid(
                "title",
                "texts must not contain the NUL character (U+0000)",
            ));
        }
    }
    let user = principal.user_of(request.user)?;
    if let Some(turn) = request.turn {
        return begin_with(engine, principal, request.title, user, turn).await;
    }
    let row = engine
        .store()
        .tenant(tenant)
        .create_conversation(
            ConversationId::new(),
            request.title,
            user,
            principal.intent.as_ref(),
        )
        .await?
        .ok_or_else(tenant_inactive)?;
    Ok(view(tenant, row))
}

/// Both or neither: a turn that is refused leaves no empty conversation behind.
async fn begin_with(
    engine: &Engine,
    principal: &Principal,
    title: Option<String>,
    user: Option<String>,
    mut turn: SubmitTurn,
) -> Result<ConversationView, Error> {
    let tenant = principal.require_tenant()?;
    turn.user = turn.user.or_else(|| user.clone());
    let run = async {
        let wanted = wanted(engine, principal, ConversationId::new(), turn)?;
        prepared(engine, principal, wanted).await
    };
    let run = run.await.map_err(|error| error.within("turn"))?;
    let hint = lane_of(tenant, &run);
    let begun = engine
        .store()
        .tenant(tenant)
        .begin_with_turn(
            FirstTurn { title, user, run },
            engine.queue_max_age_ms(),
            principal.intent.as_ref(),
        )
        .await?;
    match begun {
        Begun::Begun {
            conversation,
            run_id,
            accepted_at,
        } => {
            let created_ms = accepted_at.timestamp_millis();
            engine.work_moved(&[LaneHint { created_ms, ..hint }], &[]);
            let turn = TurnAccepted {
                run_id,
                state: RunState::Queued,
                repeated: false,
            };
            Ok(ConversationView {
                turn: Some(turn),
                ..view(tenant, conversation)
            })
        }
        Begun::TenantInactive => Err(tenant_inactive()),
        Begun::DeadlinePassed => Err(deadline_passed().within("turn")),
    }
}
