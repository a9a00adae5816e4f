//! `POST /v1/admissions/{admissionId}/renew`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{
    AdmissionId,
    api::{AdmissionView, RenewAdmission},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Gives an admission more time (R7.5).
#[utoipa::path(
    post,
    path = "/v1/admissions/{admissionId}/renew",
    tag = "admissions",
    operation_id = "renew_admission",
    params(("admissionId" = AdmissionId, Path, description = "The admission.")),
    request_body = RenewAdmission,
    responses((status = 200, description = "The admission.", body = AdmissionView))
)]
pub async fn renew_admission(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(id): PathId<AdmissionId>,
    JsonBody(body): JsonBody<RenewAdmission>,
) -> Result<Json<AdmissionView>, Failure> {
    let answer = admissions::renew(&engine, &caller, id, body).await?;
    let answer = admissions::signed(&engine, &caller, answer).await?;
    Ok(Json(answer))
}
