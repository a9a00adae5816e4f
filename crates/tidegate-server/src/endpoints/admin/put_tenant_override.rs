//! `PUT /v1/admin/tenants/{tenant}/override`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, tenants};
use tidegate_model::{
    TenantId,
    api::{LimitsView, PutTenantOverride},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Gives a tenant its tier and values of its own, in place of what it had. A body without any is refused.
#[utoipa::path(
    put,
    path = "/v1/admin/tenants/{tenant}/override",
    tag = "admin",
    operation_id = "put_tenant_override",
    params(("tenant" = TenantId, Path, description = "The tenant.")),
    request_body = PutTenantOverride,
    responses((status = 200, description = "The limits that now hold.", body = LimitsView))
)]
pub async fn put_tenant_override(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(tenant): PathId<TenantId>,
    JsonBody(body): JsonBody<PutTenantOverride>,
) -> Result<Json<LimitsView>, Failure> {
    let answer = tenants::put_override(&engine, &caller, &tenant, body).await?;
    Ok(Json(answer))
}
