//! `GET /v1/admin/grant-keys`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, grants};
use tidegate_model::api::GrantKeyList;

use crate::{extract::Caller, problem::Failure};

/// The keys that sign grants, with what each does: one is active, one is next, and those before retire (R9.1).
#[utoipa::path(
    get,
    path = "/v1/admin/grant-keys",
    tag = "admin",
    operation_id = "list_grant_keys",
    responses((status = 200, description = "The keys, without their private halves.", body = GrantKeyList))
)]
pub async fn list_grant_keys(
    State(engine): State<Engine>,
    Caller(caller): Caller,
) -> Result<Json<GrantKeyList>, Failure> {
    let answer = grants::list(&engine, &caller).await?;
    Ok(Json(answer))
}
