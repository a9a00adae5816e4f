//! `POST /v1/worker/runs/{runId}/context`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker::context};
use tidegate_model::{
    RunId,
    api::{ContextAnswer, ContextRequest},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// The conversation of a turn, up to and including its own input.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/context",
    tag = "worker",
    operation_id = "read_context",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = ContextRequest,
    responses((status = 200, description = "The messages.", body = ContextAnswer))
)]
pub async fn read_context(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<ContextRequest>,
) -> Result<Json<ContextAnswer>, Failure> {
    let answer = context::context(&engine, &caller, run, body).await?;
    Ok(Json(answer))
}
