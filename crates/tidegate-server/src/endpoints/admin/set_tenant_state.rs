//! `POST /v1/admin/tenants/{tenant}/state`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, tenants};
use tidegate_model::{
    TenantId,
    api::{SetTenantState, TenantView},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Suspends, resumes or deletes a tenant; `deleted` erases all content and cannot be undone.
#[utoipa::path(
    post,
    path = "/v1/admin/tenants/{tenant}/state",
    tag = "admin",
    operation_id = "set_tenant_state",
    params(("tenant" = TenantId, Path, description = "The tenant.")),
    request_body = SetTenantState,
    responses((status = 200, description = "The tenant.", body = TenantView))
)]
pub async fn set_tenant_state(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(tenant): PathId<TenantId>,
    JsonBody(body): JsonBody<SetTenantState>,
) -> Result<Json<TenantView>, Failure> {
    let answer = tenants::set_state(&engine, &caller, &tenant, body).await?;
    Ok(Json(answer))
}
