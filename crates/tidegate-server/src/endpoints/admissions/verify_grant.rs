//! `POST /v1/admissions/{admissionId}/verify`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{
    AdmissionId,
    api::{GrantVerdict, VerifyGrant},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Whether a grant of the admission may be consumed now (R9.1): its signature and terms, and what the ledger holds.
#[utoipa::path(
    post,
    path = "/v1/admissions/{admissionId}/verify",
    tag = "admissions",
    operation_id = "verify_grant",
    params(("admissionId" = AdmissionId, Path, description = "The admission.")),
    request_body = VerifyGrant,
    responses((status = 200, description = "The verdict.", body = GrantVerdict))
)]
pub async fn verify_grant(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(id): PathId<AdmissionId>,
    JsonBody(body): JsonBody<VerifyGrant>,
) -> Result<Json<GrantVerdict>, Failure> {
    let answer = admissions::verify(&engine, &caller, id, body).await?;
    Ok(Json(answer))
}
