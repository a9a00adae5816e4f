//! `POST /v1/admissions/{admissionId}/release`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{
    AdmissionId,
    api::{AdmissionView, ReleaseAdmission},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Gives an admission back.
#[utoipa::path(
    post,
    path = "/v1/admissions/{admissionId}/release",
    tag = "admissions",
    operation_id = "release_admission",
    params(("admissionId" = AdmissionId, Path, description = "The admission.")),
    request_body = ReleaseAdmission,
    responses((status = 200, description = "The admission, released.", body = AdmissionView))
)]
pub async fn release_admission(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(id): PathId<AdmissionId>,
    JsonBody(body): JsonBody<ReleaseAdmission>,
) -> Result<Json<AdmissionView>, Failure> {
    let answer = admissions::release(&engine, &caller, id, body).await?;
    let answer = admissions::signed(&engine, &caller, answer).await?;
    Ok(Json(answer))
}
