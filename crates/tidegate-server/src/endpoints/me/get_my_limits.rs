//! `GET /v1/me/limits`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, me};
use tidegate_model::api::LimitsView;

use crate::{extract::Caller, problem::Failure};

/// The tenant's limits, each with its source and whether it holds for one process or for all.
#[utoipa::path(
    get,
    path = "/v1/me/limits",
    tag = "me",
    operation_id = "get_my_limits",
    responses((status = 200, description = "The limits.", body = LimitsView))
)]
pub async fn get_my_limits(
    State(engine): State<Engine>,
    Caller(caller): Caller,
) -> Result<Json<LimitsView>, Failure> {
    let answer = me::limits(&engine, &caller).await?;
    Ok(Json(answer))
}
