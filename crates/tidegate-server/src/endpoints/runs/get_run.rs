//! `GET /v1/runs/{runId}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::get};
use tidegate_model::{RunId, api::RunView};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// A run with its state and, while it is queued, why it waits.
#[utoipa::path(
    get,
    path = "/v1/runs/{runId}",
    tag = "runs",
    operation_id = "get_run",
    params(("runId" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The run.", body = RunView))
)]
pub async fn get_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
) -> Result<Json<RunView>, Failure> {
    let answer = get::get(&engine, &caller, run).await?;
    Ok(Json(answer))
}
