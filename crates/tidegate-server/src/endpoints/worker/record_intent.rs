//! `POST /v1/worker/runs/{runId}/effects`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker::effects};
use tidegate_model::{
    RunId,
    api::{IntentAnswer, RecordIntent},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Records that a tool is about to be called that may change something; says what is known where it was called before.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/effects",
    tag = "worker",
    operation_id = "record_intent",
    params(("runId" = RunId, Path, description = "The run.")),
    request_body = RecordIntent,
    responses((status = 200, description = "Call now, or go on with what is known.", body = IntentAnswer))
)]
pub async fn record_intent(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<RecordIntent>,
) -> Result<Json<IntentAnswer>, Failure> {
    let answer = effects::intend(&engine, &caller, run, body).await?;
    Ok(Json(answer))
}
