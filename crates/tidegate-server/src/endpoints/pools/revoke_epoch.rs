//! `POST /v1/pools/{poolId}/revoke`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, pools};
use tidegate_model::{
    PoolId,
    api::{PoolView, RevokeEpoch},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Takes a published epoch away for good: what runs under it is told to stop and goes back to the queue (R18.3).
#[utoipa::path(
    post,
    path = "/v1/pools/{poolId}/revoke",
    tag = "pools",
    operation_id = "revoke_epoch",
    params(("poolId" = PoolId, Path, description = "The pool.")),
    request_body = RevokeEpoch,
    responses((status = 200, description = "The pool.", body = PoolView))
)]
pub async fn revoke_epoch(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(pool): PathId<PoolId>,
    JsonBody(body): JsonBody<RevokeEpoch>,
) -> Result<Json<PoolView>, Failure> {
    let answer = pools::revoke_epoch(&engine, &caller, &pool, body).await?;
    Ok(Json(answer))
}
