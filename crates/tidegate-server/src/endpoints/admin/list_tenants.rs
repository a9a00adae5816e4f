//! `GET /v1/admin/tenants`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, tenants};
use tidegate_model::api::{Page, PageQuery, TenantView};

use crate::{
    extract::{Caller, QueryOf},
    problem::Failure,
};

/// All tenants.
#[utoipa::path(
    get,
    path = "/v1/admin/tenants",
    tag = "admin",
    operation_id = "list_tenants",
    params(PageQuery),
    responses((status = 200, description = "A page of tenants.", body = Page<TenantView>))
)]
pub async fn list_tenants(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<TenantView>>, Failure> {
    let answer = tenants::list(&engine, &caller, &query).await?;
    Ok(Json(answer))
}
