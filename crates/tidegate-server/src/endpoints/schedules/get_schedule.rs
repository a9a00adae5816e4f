//! `GET /v1/schedules/{name}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, schedules::get};
use tidegate_model::{api::ScheduleView, ids::ScheduleName};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// A schedule.
#[utoipa::path(
    get,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    operation_id = "get_schedule",
    params(("name" = ScheduleName, Path, description = "Its name.")),
    responses((status = 200, description = "The schedule, with the next due times.", body = ScheduleView))
)]
pub async fn get_schedule(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ScheduleName>,
) -> Result<Json<ScheduleView>, Failure> {
    let answer = get::get(&engine, &caller, &name).await?;
    Ok(Json(answer))
}
