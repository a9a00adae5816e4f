//! `POST /v1/runs:cancel`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::bulk};
use tidegate_model::api::{BulkOutcome, RunFilter};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Cancels all runs that the filter selects.
#[utoipa::path(
    post,
    path = "/v1/runs:cancel",
    tag = "runs",
    operation_id = "cancel_runs",
    request_body = RunFilter,
    responses((status = 200, description = "How many.", body = BulkOutcome))
)]
pub async fn cancel_runs(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<RunFilter>,
) -> Result<Json<BulkOutcome>, Failure> {
    let answer = bulk::cancel_all(&engine, &caller, body).await?;
    Ok(Json(answer))
}
