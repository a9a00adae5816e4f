//! `POST /v1/worker/runs/{runId}/events`.

use axum::extract::State;
use http::StatusCode;
use tidegate_engine::{Engine, worker::events};
use tidegate_model::{RunId, api::AppendEvents};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Adds events to the run; the same numbers sent twice are written once.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/events",
    tag = "worker",
    operation_id = "append_events",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = AppendEvents,
    responses((status = 204, description = "Written."))
)]
pub async fn append_events(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<AppendEvents>,
) -> Result<StatusCode, Failure> {
    events::append(&engine, &caller, run, body).await?;
    Ok(StatusCode::NO_CONTENT)
}
