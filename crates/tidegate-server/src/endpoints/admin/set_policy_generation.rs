//! `POST /v1/admin/policy-generation`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, pools};
use tidegate_model::api::{PolicyGeneration, SetPolicyGeneration};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Raises the policy generation, if the caller knows the one before; never lowered (R5.3).
#[utoipa::path(
    post,
    path = "/v1/admin/policy-generation",
    tag = "admin",
    operation_id = "set_policy_generation",
    request_body = SetPolicyGeneration,
    responses((status = 200, description = "The generation.", body = PolicyGeneration))
)]
pub async fn set_policy_generation(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<SetPolicyGeneration>,
) -> Result<Json<PolicyGeneration>, Failure> {
    let answer = pools::set_policy_generation(&engine, &caller, body).await?;
    Ok(Json(answer))
}
