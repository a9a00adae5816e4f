//! `POST /v1/admissions`.

use axum::{Json, extract::State};
use http::StatusCode;
use tidegate_engine::{Engine, admissions};
use tidegate_model::api::{AdmissionView, AdmitRequest};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Reserves everything that a piece of work takes, or nothing (R7.3).
///
/// Answered at once: admitted, or refused with what is short in each pool. The same id with the same requirements is the same
/// admission again; what was refused stored nothing, and may be tried again under its id.
#[utoipa::path(
    post,
    path = "/v1/admissions",
    tag = "admissions",
    operation_id = "admit",
    request_body = AdmitRequest,
    responses((status = 201, description = "It is admitted, now or by an earlier request.", body = AdmissionView))
)]
pub async fn admit(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<AdmitRequest>,
) -> Result<(StatusCode, Json<AdmissionView>), Failure> {
    let answer = admissions::admit(&engine, &caller, body).await?;
    let answer = admissions::signed(&engine, &caller, answer).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}
