//! `POST /v1/runs/{runId}/cancel`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::cancel};
use tidegate_model::{RunId, api::RunView};

use crate::{
    extract::{Caller, NoBody, PathId},
    problem::Failure,
};

/// Cancels a run: a queued one ends at once, a running one is told and fenced off after the grace.
#[utoipa::path(
    post,
    path = "/v1/runs/{runId}/cancel",
    tag = "runs",
    operation_id = "cancel_run",
    params(("runId" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The run as it is now.", body = RunView))
)]
pub async fn cancel_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    _: NoBody,
) -> Result<Json<RunView>, Failure> {
    let answer = cancel::cancel(&engine, &caller, run).await?;
    Ok(Json(answer))
}
