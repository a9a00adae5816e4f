//! `DELETE /v1/admin/keys/{keyId}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, keys};
use tidegate_model::{KeyId, api::KeyView};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// Revokes a key on every instance.
#[utoipa::path(
    delete,
    path = "/v1/admin/keys/{keyId}",
    tag = "admin",
    operation_id = "revoke_key",
    params(("keyId" = KeyId, Path, description = "The key.")),
    responses((status = 200, description = "The key, revoked.", body = KeyView))
)]
pub async fn revoke_key(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(key): PathId<KeyId>,
) -> Result<Json<KeyView>, Failure> {
    let answer = keys::revoke(&engine, &caller, key).await?;
    Ok(Json(answer))
}
