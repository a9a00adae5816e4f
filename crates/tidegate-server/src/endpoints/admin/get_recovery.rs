//! `GET /v1/admin/recovery`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, ops};
use tidegate_model::api::RecoveryView;

use crate::{extract::Caller, problem::Failure};

/// What dangles after a restore or a promotion of the database.
#[utoipa::path(
    get,
    path = "/v1/admin/recovery",
    tag = "admin",
    operation_id = "get_recovery",
    responses((status = 200, description = "The generation of fences and leases of earlier ones.", body = RecoveryView))
)]
pub async fn get_recovery(
    State(engine): State<Engine>,
    Caller(caller): Caller,
) -> Result<Json<RecoveryView>, Failure> {
    let answer = ops::recovery(&engine, &caller).await?;
    Ok(Json(answer))
}
