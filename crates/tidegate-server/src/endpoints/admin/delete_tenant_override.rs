//! `DELETE /v1/admin/tenants/{tenant}/override`.

use axum::extract::State;
use http::StatusCode;
use tidegate_engine::{Engine, tenants};
use tidegate_model::TenantId;

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// Takes away what a tenant has of its own; everything comes from the tier `standard` again.
#[utoipa::path(
    delete,
    path = "/v1/admin/tenants/{tenant}/override",
    tag = "admin",
    operation_id = "delete_tenant_override",
    params(("tenant" = TenantId, Path, description = "The tenant.")),
    responses((status = 204, description = "Removed."))
)]
pub async fn delete_tenant_override(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(tenant): PathId<TenantId>,
) -> Result<StatusCode, Failure> {
    tenants::delete_override(&engine, &caller, &tenant).await?;
    Ok(StatusCode::NO_CONTENT)
}
