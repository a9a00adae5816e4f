//! `GET /v1/admin/policy-generation`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, pools};
use tidegate_model::api::PolicyGeneration;

use crate::{extract::Caller, problem::Failure};

/// The policy generation in force: descriptors of any other one serve nothing (R5.3).
#[utoipa::path(
    get,
    path = "/v1/admin/policy-generation",
    tag = "admin",
    operation_id = "get_policy_generation",
    responses((status = 200, description = "The generation.", body = PolicyGeneration))
)]
pub async fn get_policy_generation(
    State(engine): State<Engine>,
    Caller(caller): Caller,
) -> Result<Json<PolicyGeneration>, Failure> {
    let answer = pools::policy_generation(&engine, &caller).await?;
    Ok(Json(answer))
}
