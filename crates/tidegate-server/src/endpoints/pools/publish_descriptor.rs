//! `PUT /v1/pools/{poolId}/descriptors/{epoch}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, pools};
use tidegate_model::{PoolId, api::DescriptorEpochView, contracts::CapabilityDescriptor};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Publishes a descriptor, which nobody can change afterwards; the same one again is fine.
#[utoipa::path(
    put,
    path = "/v1/pools/{poolId}/descriptors/{epoch}",
    tag = "pools",
    operation_id = "publish_descriptor",
    params(
        ("poolId" = PoolId, Path, description = "The pool."),
        ("epoch" = i64, Path, description = "The descriptor's epoch."),
    ),
    request_body = CapabilityDescriptor,
    responses((status = 200, description = "The descriptor's digest.", body = DescriptorEpochView))
)]
pub async fn publish_descriptor(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId((pool, epoch)): PathId<(PoolId, i64)>,
    JsonBody(body): JsonBody<CapabilityDescriptor>,
) -> Result<Json<DescriptorEpochView>, Failure> {
    let answer = pools::publish(&engine, &caller, &pool, epoch, body).await?;
    Ok(Json(answer))
}
