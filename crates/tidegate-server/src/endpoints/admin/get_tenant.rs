//! `GET /v1/admin/tenants/{tenant}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, tenants};
use tidegate_model::{TenantId, api::TenantView};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// A tenant.
#[utoipa::path(
    get,
    path = "/v1/admin/tenants/{tenant}",
    tag = "admin",
    operation_id = "get_tenant",
    params(("tenant" = TenantId, Path, description = "The tenant.")),
    responses((status = 200, description = "The tenant.", body = TenantView))
)]
pub async fn get_tenant(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(tenant): PathId<TenantId>,
) -> Result<Json<TenantView>, Failure> {
    let answer = tenants::get(&engine, &caller, &tenant).await?;
    Ok(Json(answer))
}
