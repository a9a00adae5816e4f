//! `POST /v1/admissions/{admissionId}/phase`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{
    AdmissionId,
    api::{AdmissionView, EndPhase},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Ends a phase: settles what was used, gives back what is no longer needed, and admits the next phase anew (R10.1).
#[utoipa::path(
    post,
    path = "/v1/admissions/{admissionId}/phase",
    tag = "admissions",
    operation_id = "end_phase",
    params(("admissionId" = AdmissionId, Path, description = "The admission.")),
    request_body = EndPhase,
    responses((status = 200, description = "The admission.", body = AdmissionView))
)]
pub async fn end_phase(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(id): PathId<AdmissionId>,
    JsonBody(body): JsonBody<EndPhase>,
) -> Result<Json<AdmissionView>, Failure> {
    let answer = admissions::end_phase(&engine, &caller, id, body).await?;
    let answer = admissions::signed(&engine, &caller, answer).await?;
    Ok(Json(answer))
}
