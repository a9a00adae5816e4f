//! `GET /v1/runs/{runId}/explain`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::explain};
use tidegate_model::{RunId, api::RunExplain};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// Why a run is where it is: every cause, queueing time by cause, its attempts.
#[utoipa::path(
    get,
    path = "/v1/runs/{runId}/explain",
    tag = "runs",
    operation_id = "explain_run",
    params(("runId" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The explanation.", body = RunExplain))
)]
pub async fn explain_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
) -> Result<Json<RunExplain>, Failure> {
    let answer = explain::explain(&engine, &caller, run).await?;
    Ok(Json(answer))
}
