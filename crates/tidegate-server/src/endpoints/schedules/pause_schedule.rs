//! `POST /v1/schedules/{name}/pause`.

use axum::{Json, extract::State};
use tidegate_engine::{
    Engine,
    schedules::pause::{self, Firing},
};
use tidegate_model::{api::ScheduleView, ids::ScheduleName};

use crate::{
    extract::{Caller, NoBody, PathId},
    problem::Failure,
};

/// Pauses a schedule: nothing is fired until it is resumed.
#[utoipa::path(
    post,
    path = "/v1/schedules/{name}/pause",
    tag = "schedules",
    operation_id = "pause_schedule",
    params(("name" = ScheduleName, Path, description = "Its name.")),
    responses((status = 200, description = "The schedule as it is now.", body = ScheduleView))
)]
pub async fn pause_schedule(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ScheduleName>,
    _: NoBody,
) -> Result<Json<ScheduleView>, Failure> {
    let answer = pause::pause(&engine, &caller, &name, Firing::Paused).await?;
    Ok(Json(answer))
}
