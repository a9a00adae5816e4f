//! `POST /v1/runs:requeue`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::bulk};
use tidegate_model::api::{BulkOutcome, RunFilter};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Puts back all dead letters that the filter selects.
#[utoipa::path(
    post,
    path = "/v1/runs:requeue",
    tag = "runs",
    operation_id = "requeue_runs",
    request_body = RunFilter,
    responses((status = 200, description = "How many.", body = BulkOutcome))
)]
pub async fn requeue_runs(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<RunFilter>,
) -> Result<Json<BulkOutcome>, Failure> {
    let answer = bulk::requeue_all(&engine, &caller, body).await?;
    Ok(Json(answer))
}
