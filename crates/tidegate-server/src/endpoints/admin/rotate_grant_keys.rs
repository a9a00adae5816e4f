//! `POST /v1/admin/grant-keys/rotate`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, grants};
use tidegate_model::api::GrantKeyList;

use crate::{extract::Caller, problem::Failure};

/// Lets the next key sign grants, at once or when it was published for three minutes, and publishes another one. What the key
/// before has signed stays good until it ends; then the key retires, 63 minutes after its last signature (R9.1). While a key
/// is `starting`, `STATE_CONFLICT`.
#[utoipa::path(
    post,
    path = "/v1/admin/grant-keys/rotate",
    tag = "admin",
    operation_id = "rotate_grant_keys",
    responses((status = 200, description = "The keys as they are now.", body = GrantKeyList))
)]
pub async fn rotate_grant_keys(
    State(engine): State<Engine>,
    Caller(caller): Caller,
) -> Result<Json<GrantKeyList>, Failure> {
    let answer = grants::rotate(&engine, &caller).await?;
    Ok(Json(answer))
}
