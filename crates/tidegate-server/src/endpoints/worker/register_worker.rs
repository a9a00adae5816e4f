//! `POST /v1/worker/register`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker};
use tidegate_model::api::{RegisterWorker, WorkerView};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// A worker joins the pool of its key and shows what it runs (R5.2). Needed where the descriptor in force names a runtime.
#[utoipa::path(
    post,
    path = "/v1/worker/register",
    tag = "worker",
    operation_id = "register_worker",
    request_body = RegisterWorker,
    responses((status = 200, description = "The worker.", body = WorkerView))
)]
pub async fn register_worker(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<RegisterWorker>,
) -> Result<Json<WorkerView>, Failure> {
    let answer = worker::register::register(&engine, &caller, body).await?;
    Ok(Json(answer))
}
