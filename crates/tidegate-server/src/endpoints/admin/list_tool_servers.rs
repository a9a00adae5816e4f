//! `GET /v1/admin/tool-servers`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, catalog};
use tidegate_model::api::{Page, PageQuery, ToolServerView};

use crate::{
    extract::{Caller, QueryOf},
    page,
    problem::Failure,
};

/// The catalogue: a tool server per item.
#[utoipa::path(
    get,
    path = "/v1/admin/tool-servers",
    tag = "admin",
    operation_id = "list_tool_servers",
    params(PageQuery),
    responses((status = 200, description = "A page of the catalogue.", body = Page<ToolServerView>))
)]
pub async fn list_tool_servers(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<ToolServerView>>, Failure> {
    let items = catalog::list_tool_servers(&engine, &caller).await?;
    let page = page::cut(items, &query, |item| item.name.to_string())?;
    Ok(Json(page))
}
