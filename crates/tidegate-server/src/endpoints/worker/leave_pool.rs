//! `DELETE /v1/worker/registration`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker};
use tidegate_model::api::{LeavePool, WorkerView};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// A worker leaves its pool (R5.2). One of an incarnation that has passed changes nothing.
#[utoipa::path(
    delete,
    path = "/v1/worker/registration",
    tag = "worker",
    operation_id = "leave_pool",
    request_body = LeavePool,
    responses((status = 200, description = "The worker.", body = WorkerView))
)]
pub async fn leave_pool(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<LeavePool>,
) -> Result<Json<WorkerView>, Failure> {
    let answer = worker::register::leave(&engine, &caller, body).await?;
    Ok(Json(answer))
}
