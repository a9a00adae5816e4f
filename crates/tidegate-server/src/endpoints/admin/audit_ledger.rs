//! `GET /v1/admin/ledger`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::api::LedgerAudit;

use crate::{extract::Caller, problem::Failure};

/// Lays every counter of the ledger beside the sum of what is held (R7.4).
#[utoipa::path(
    get,
    path = "/v1/admin/ledger",
    tag = "admin",
    operation_id = "audit_ledger",
    responses((status = 200, description = "What was found.", body = LedgerAudit))
)]
pub async fn audit_ledger(
    State(engine): State<Engine>,
    Caller(caller): Caller,
) -> Result<Json<LedgerAudit>, Failure> {
    let answer = admissions::audit_ledger(&engine, &caller).await?;
    Ok(Json(answer))
}
