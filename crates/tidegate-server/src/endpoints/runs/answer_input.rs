//! `POST /v1/runs/{runId}/inputs`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::input};
use tidegate_model::{
    RunId,
    api::{AnswerInput, RunView},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Answers what a waiting run asked, and queues it at the head of its tenant.
#[utoipa::path(
    post,
    path = "/v1/runs/{runId}/inputs",
    tag = "runs",
    operation_id = "answer_input",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = AnswerInput,
    responses((status = 200, description = "The run as it is now.", body = RunView))
)]
pub async fn answer_input(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<AnswerInput>,
) -> Result<Json<RunView>, Failure> {
    let answer = input::answer(&engine, &caller, run, body).await?;
    Ok(Json(answer))
}
