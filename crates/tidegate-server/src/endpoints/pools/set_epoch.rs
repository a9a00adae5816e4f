//! `POST /v1/pools/{poolId}/epoch`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, pools};
use tidegate_model::{
    PoolId,
    api::{PoolView, SetEpoch},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Puts a published epoch in force, if the caller knows the one before.
#[utoipa::path(
    post,
    path = "/v1/pools/{poolId}/epoch",
    tag = "pools",
    operation_id = "set_epoch",
    params(("poolId" = PoolId, Path, description = "The pool.")),
    request_body = SetEpoch,
    responses((status = 200, description = "The pool.", body = PoolView))
)]
pub async fn set_epoch(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(pool): PathId<PoolId>,
    JsonBody(body): JsonBody<SetEpoch>,
) -> Result<Json<PoolView>, Failure> {
    let answer = pools::set_epoch(&engine, &caller, &pool, body).await?;
    Ok(Json(answer))
}
