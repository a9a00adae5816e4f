//! `POST /v1/worker/runs/{runId}/complete`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker::close};
use tidegate_model::{
    RunId,
    api::{AttemptAnswer, CompleteRun},
};

use crate::{
    extract::{Caller, LargeBody, PathId},
    problem::Failure,
};

/// Ends the run well.
///
/// Who completes knows what was done: an effect that was intended and never recorded does not send the run to review, it
/// stays unknown in the run's explanation. Sent again with the same fence, it is answered with where the run is now.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/complete",
    tag = "worker",
    operation_id = "complete_run",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = CompleteRun,
    responses((status = 200, description = "Where the run is now.", body = AttemptAnswer))
)]
pub async fn complete_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    LargeBody(body): LargeBody<CompleteRun>,
) -> Result<Json<AttemptAnswer>, Failure> {
    let answer = close::complete(&engine, &caller, run, body).await?;
    Ok(Json(answer))
}
