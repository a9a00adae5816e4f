//! `GET /v1/conversations/{conversationId}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, conversations::list};
use tidegate_model::{ConversationId, api::ConversationView};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// A conversation; what was said is in its messages.
#[utoipa::path(
    get,
    path = "/v1/conversations/{conversationId}",
    tag = "conversations",
    operation_id = "get_conversation",
    params(("conversationId" = ConversationId, Path, description = "The conversation.")),
    responses((status = 200, description = "The conversation.", body = ConversationView))
)]
pub async fn get_conversation(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(conversation): PathId<ConversationId>,
) -> Result<Json<ConversationView>, Failure> {
    let answer = list::get_conversation(&engine, &caller, conversation).await?;
    Ok(Json(answer))
}
