//! `POST /v1/worker/renew`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, worker::renew};
use tidegate_model::api::{RenewAnswer, RenewRequest};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Keeps leases. Each one asked for comes back as renewed or as lost.
#[utoipa::path(
    post,
    path = "/v1/worker/renew",
    tag = "worker",
    operation_id = "renew_leases",
    request_body = RenewRequest,
    responses((status = 200, description = "What is still held.", body = RenewAnswer))
)]
pub async fn renew_leases(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<RenewRequest>,
) -> Result<Json<RenewAnswer>, Failure> {
    let answer = renew::renew(&engine, &caller, body).await?;
    Ok(Json(answer))
}
