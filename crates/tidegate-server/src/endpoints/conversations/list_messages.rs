//! `GET /v1/conversations/{conversationId}/messages`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, conversations::messages};
use tidegate_model::{
    ConversationId,
    api::{MessageView, Page, PageQuery},
};

use crate::{
    extract::{Caller, PathId, QueryOf},
    problem::Failure,
};

/// The messages of a conversation in the order of its turns, each oldest first: an answer stands behind its own question, also
/// where the next one was asked meanwhile. Numbers are given as messages are written, so that they need not rise.
#[utoipa::path(
    get,
    path = "/v1/conversations/{conversationId}/messages",
    tag = "conversations",
    operation_id = "list_messages",
    params(("conversationId" = ConversationId, Path, description = "The conversation."), PageQuery),
    responses((status = 200, description = "A page of messages.", body = Page<MessageView>))
)]
pub async fn list_messages(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(conversation): PathId<ConversationId>,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<MessageView>>, Failure> {
    let answer = messages::list_messages(&engine, &caller, conversation, query).await?;
    Ok(Json(answer))
}
