//! `GET /v1/admin/audit`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, ops};
use tidegate_model::api::{AuditView, Page, PageQuery};

use crate::{
    extract::{Caller, QueryOf},
    problem::Failure,
};

/// Administrative writes, newest first.
#[utoipa::path(
    get,
    path = "/v1/admin/audit",
    tag = "admin",
    operation_id = "list_audit",
    params(PageQuery),
    responses((status = 200, description = "A page of the audit.", body = Page<AuditView>))
)]
pub async fn list_audit(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<AuditView>>, Failure> {
    let answer = ops::audit(&engine, &caller, &query).await?;
    Ok(Json(answer))
}
