//! `GET /v1/admissions/{admissionId}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{AdmissionId, api::AdmissionView};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// An admission, open or over.
#[utoipa::path(
    get,
    path = "/v1/admissions/{admissionId}",
    tag = "admissions",
    operation_id = "get_admission",
    params(("admissionId" = AdmissionId, Path, description = "The admission.")),
    responses((status = 200, description = "The admission.", body = AdmissionView))
)]
pub async fn get_admission(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(id): PathId<AdmissionId>,
) -> Result<Json<AdmissionView>, Failure> {
    let answer = admissions::get_admission(&engine, &caller, id).await?;
    let answer = admissions::signed(&engine, &caller, answer).await?;
    Ok(Json(answer))
}
