//! `POST /v1/runs/{runId}/requeue`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::requeue};
use tidegate_model::{RunId, api::RunView};

use crate::{
    extract::{Caller, NoBody, PathId},
    problem::Failure,
};

/// Puts a dead letter back in the queue, through the checks of any new run.
#[utoipa::path(
    post,
    path = "/v1/runs/{runId}/requeue",
    tag = "runs",
    operation_id = "requeue_run",
    params(("runId" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The run as it is now.", body = RunView))
)]
pub async fn requeue_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    _: NoBody,
) -> Result<Json<RunView>, Failure> {
    let answer = requeue::requeue(&engine, &caller, run).await?;
    Ok(Json(answer))
}
