//! `POST /v1/runs`.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use tidegate_engine::{Engine, runs::submit};
use tidegate_model::api::{RunView, SubmitRun};

use crate::{
    extract::{Caller, IdempotencyKey, JsonBody},
    middleware::repeats::replayed,
    problem::Failure,
};

/// Submits a business task. The kind is never in a body; the key needs the scope `runs:business`.
#[utoipa::path(
    post,
    path = "/v1/runs",
    tag = "runs",
    operation_id = "submit_run",
    request_body = SubmitRun,
    responses(
        (status = 202, description = "Accepted.", body = RunView),
        (status = 200, description = "Accepted before under this key.", body = RunView),
    )
)]
pub async fn submit_run(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    IdempotencyKey(key): IdempotencyKey,
    JsonBody(body): JsonBody<SubmitRun>,
) -> Result<Response, Failure> {
    let run = submit::submit(&engine, &caller, body, key).await?;
    Ok(if run.repeated {
        replayed(Json(run))
    } else {
        (StatusCode::ACCEPTED, Json(run)).into_response()
    })
}
