//! `PUT /v1/admin/tool-servers/{name}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, catalog};
use tidegate_model::{
    api::{PutToolServer, ToolServerView},
    ids::CatalogName,
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Creates or replaces a tool server.
#[utoipa::path(
    put,
    path = "/v1/admin/tool-servers/{name}",
    tag = "admin",
    operation_id = "put_tool_server",
    params(("name" = CatalogName, Path, description = "Its name in the catalogue.")),
    request_body = PutToolServer,
    responses((status = 200, description = "As stored; secrets are not shown.", body = ToolServerView))
)]
pub async fn put_tool_server(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<CatalogName>,
    JsonBody(body): JsonBody<PutToolServer>,
) -> Result<Json<ToolServerView>, Failure> {
    let answer = catalog::put_tool_server(&engine, &caller, name, body).await?;
    Ok(Json(answer))
}
