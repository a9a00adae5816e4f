//! `GET /v1/runs/{runId}/children`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::children};
use tidegate_model::{RunId, api::RunTree};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// All descendants of a run, each after its parent.
#[utoipa::path(
    get,
    path = "/v1/runs/{runId}/children",
    tag = "runs",
    operation_id = "list_children",
    params(("runId" = RunId, Path, description = "The run at the top.")),
    responses((status = 200, description = "The tree below it.", body = RunTree))
)]
pub async fn list_children(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
) -> Result<Json<RunTree>, Failure> {
    let tree = children::tree(&engine, &caller, run).await?;
    Ok(Json(tree))
}
