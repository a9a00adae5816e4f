//! `GET /v1/me/usage`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, me};
use tidegate_model::api::UsageView;

use crate::{extract::Caller, problem::Failure};

/// What the tenant has queued and running now.
#[utoipa::path(
    get,
    path = "/v1/me/usage",
    tag = "me",
    operation_id = "get_my_usage",
    responses((status = 200, description = "The usage.", body = UsageView))
)]
pub async fn get_my_usage(
    State(engine): State<Engine>,
    Caller(caller): Caller,
) -> Result<Json<UsageView>, Failure> {
    let answer = me::usage(&engine, &caller).await?;
    Ok(Json(answer))
}
