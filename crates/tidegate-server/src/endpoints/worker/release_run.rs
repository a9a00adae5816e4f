//! `POST /v1/worker/runs/{runId}/release`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker::close};
use tidegate_model::{
    RunId,
    api::{AttemptAnswer, ReleaseRun},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Hands the run back before its first effect; costs no attempt.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/release",
    tag = "worker",
    operation_id = "release_run",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = ReleaseRun,
    responses((status = 200, description = "Where the run is now.", body = AttemptAnswer))
)]
pub async fn release_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<ReleaseRun>,
) -> Result<Json<AttemptAnswer>, Failure> {
    let answer = close::release(&engine, &caller, run, body).await?;
    Ok(Json(answer))
}
