//! `POST /v1/admissions/explain`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::api::{AdmissionExplanation, ExplainAdmission};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Says what an admission would meet, and reserves nothing (R6.5).
#[utoipa::path(
    post,
    path = "/v1/admissions/explain",
    tag = "admissions",
    operation_id = "explain_admission",
    request_body = ExplainAdmission,
    responses((status = 200, description = "Every pool, with what keeps it from admitting.", body = AdmissionExplanation))
)]
pub async fn explain_admission(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<ExplainAdmission>,
) -> Result<Json<AdmissionExplanation>, Failure> {
    let answer = admissions::explain(&engine, &caller, body).await?;
    Ok(Json(answer))
}
