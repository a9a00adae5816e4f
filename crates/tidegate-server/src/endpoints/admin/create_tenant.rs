//! `POST /v1/admin/tenants`.

use axum::{Json, extract::State};
use http::StatusCode;
use tidegate_engine::{Engine, tenants};
use tidegate_model::api::{CreateTenant, TenantView};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Makes a tenant; its name is never reused.
#[utoipa::path(
    post,
    path = "/v1/admin/tenants",
    tag = "admin",
    operation_id = "create_tenant",
    request_body = CreateTenant,
    responses((status = 201, description = "The tenant.", body = TenantView))
)]
pub async fn create_tenant(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<CreateTenant>,
) -> Result<(StatusCode, Json<TenantView>), Failure> {
    let answer = tenants::create(&engine, &caller, body).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}
