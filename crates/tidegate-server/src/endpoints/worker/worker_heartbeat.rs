//! `POST /v1/worker/heartbeat`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker};
use tidegate_model::api::{WorkerHeartbeat, WorkerView};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// A worker says how many runs it works on, and nothing else (R5.2).
#[utoipa::path(
    post,
    path = "/v1/worker/heartbeat",
    tag = "worker",
    operation_id = "worker_heartbeat",
    request_body = WorkerHeartbeat,
    responses((status = 200, description = "The worker.", body = WorkerView))
)]
pub async fn worker_heartbeat(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<serde_json::Value>,
) -> Result<Json<WorkerView>, Failure> {
    let answer = worker::register::heartbeat(&engine, &caller, body).await?;
    Ok(Json(answer))
}
