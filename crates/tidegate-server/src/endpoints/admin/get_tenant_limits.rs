//! `GET /v1/admin/tenants/{tenant}/limits`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, tenants};
use tidegate_model::{TenantId, api::LimitsView};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// A tenant's limits, each with its source.
#[utoipa::path(
    get,
    path = "/v1/admin/tenants/{tenant}/limits",
    tag = "admin",
    operation_id = "get_tenant_limits",
    params(("tenant" = TenantId, Path, description = "The tenant.")),
    responses((status = 200, description = "The limits.", body = LimitsView))
)]
pub async fn get_tenant_limits(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(tenant): PathId<TenantId>,
) -> Result<Json<LimitsView>, Failure> {
    let answer = tenants::limits(&engine, &caller, &tenant).await?;
    Ok(Json(answer))
}
