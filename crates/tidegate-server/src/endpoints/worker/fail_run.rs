//! `POST /v1/worker/runs/{runId}/fail`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker::close};
use tidegate_model::{
    RunId,
    api::{AttemptAnswer, FailRun},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Ends the attempt badly; the answer says what became of the run.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/fail",
    tag = "worker",
    operation_id = "fail_run",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = FailRun,
    responses((status = 200, description = "Where the run is now.", body = AttemptAnswer))
)]
pub async fn fail_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<FailRun>,
) -> Result<Json<AttemptAnswer>, Failure> {
    let answer = close::fail(&engine, &caller, run, body).await?;
    Ok(Json(answer))
}
