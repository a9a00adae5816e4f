//! `POST /v1/worker/runs/{runId}/wait`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker::wait};
use tidegate_model::{
    RunId,
    api::{AttemptAnswer, WaitRun},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Ends the attempt until children have ended, a person has answered or a time has come. The run then holds nothing; the
/// state in the answer is `queued` where what it waits for is there already.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/wait",
    tag = "worker",
    operation_id = "wait_run",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = WaitRun,
    responses((status = 200, description = "Where the run is now.", body = AttemptAnswer))
)]
pub async fn wait_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<WaitRun>,
) -> Result<Json<AttemptAnswer>, Failure> {
    let answer = wait::wait(&engine, &caller, run, body).await?;
    Ok(Json(answer))
}
