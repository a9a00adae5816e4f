//! `POST /v1/worker/runs/{runId}/effects/{callId}`.

use axum::extract::State;
use http::StatusCode;
use tidegate_engine::{Engine, worker::effects};
use tidegate_model::{RunId, api::RecordOutcome, effect::CallId};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Records what came of a call; the same outcome sent twice is recorded once.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/effects/{callId}",
    tag = "worker",
    operation_id = "record_outcome",
    params(
        ("runId" = RunId, Path, description = "The run."),
        ("callId" = CallId, Path, description = "The call, as its intent named it.")
    ),
    request_body = RecordOutcome,
    responses((status = 204, description = "Recorded."))
)]
pub async fn record_outcome(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId((run, call)): PathId<(RunId, CallId)>,
    JsonBody(body): JsonBody<RecordOutcome>,
) -> Result<StatusCode, Failure> {
    effects::settle(&engine, &caller, run, call, body).await?;
    Ok(StatusCode::NO_CONTENT)
}
