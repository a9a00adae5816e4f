//! `POST /v1/runs`.

use axum::{Json, extract::State};
use http::StatusCode;
use tidegate_engine::{Engine, runs::submit};
use tidegate_model::api::{RunView, SubmitRun};

use crate::{
    extract::{Caller, IdempotencyKey, JsonBody},
    problem::Failure,
};

/// Submits a business task. The kind is never in a body; the key needs the scope `runs:business`.
#[utoipa::path(
    post,
    path = "/v1/runs",
    tag = "runs",
    operation_id = "submit_run",
    params(("idempotency-key" = Option<String>, Header, description = "The same key and body give the same run; 1 to 200 printable ASCII characters.")),
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
) -> Result<(StatusCode, Json<RunView>), Failure> {
    let run = submit::submit(&engine, &caller, body, key).await?;
    let status = if run.repeated {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok((status, Json(run)))
}
