//! `POST /v1/conversations`.

use axum::{Json, extract::State};
use http::StatusCode;
use tidegate_engine::{Engine, conversations::create};
use tidegate_model::api::{ConversationView, CreateConversation};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Begins a conversation.
///
/// With `turn` its first turn is accepted in the same transaction: where the turn is refused, there is no conversation.
#[utoipa::path(
    post,
    path = "/v1/conversations",
    tag = "conversations",
    operation_id = "create_conversation",
    request_body = CreateConversation,
    responses((status = 201, description = "The conversation.", body = ConversationView))
)]
pub async fn create_conversation(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<CreateConversation>,
) -> Result<(StatusCode, Json<ConversationView>), Failure> {
    let answer = create::create_conversation(&engine, &caller, body).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}
