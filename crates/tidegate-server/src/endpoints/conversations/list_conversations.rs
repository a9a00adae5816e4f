//! `GET /v1/conversations`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, conversations::list};
use tidegate_model::api::{ConversationView, Page, PageQuery};

use crate::{
    extract::{Caller, QueryOf},
    problem::Failure,
};

/// The tenant's conversations, newest first.
#[utoipa::path(
    get,
    path = "/v1/conversations",
    tag = "conversations",
    operation_id = "list_conversations",
    params(PageQuery),
    responses((status = 200, description = "A page of conversations.", body = Page<ConversationView>))
)]
pub async fn list_conversations(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<ConversationView>>, Failure> {
    let answer = list::list_conversations(&engine, &caller, query).await?;
    Ok(Json(answer))
}
