//! `POST /v1/runs/{runId}/resolve`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::resolve};
use tidegate_model::{
    RunId,
    api::{ResolveRun, RunView},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Says what became of the effects of a run in review: the run goes on with that fact, or is given up.
#[utoipa::path(
    post,
    path = "/v1/runs/{runId}/resolve",
    tag = "runs",
    operation_id = "resolve_run",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = ResolveRun,
    responses((status = 200, description = "The run as it is now.", body = RunView))
)]
pub async fn resolve_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<ResolveRun>,
) -> Result<Json<RunView>, Failure> {
    let answer = resolve::resolve(&engine, &caller, run, body).await?;
    Ok(Json(answer))
}
