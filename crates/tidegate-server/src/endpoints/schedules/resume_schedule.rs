//! `POST /v1/schedules/{name}/resume`.

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

/// Resumes a schedule. For the due times in the pause its rule for missed runs holds.
#[utoipa::path(
    post,
    path = "/v1/schedules/{name}/resume",
    tag = "schedules",
    operation_id = "resume_schedule",
    params(("name" = ScheduleName, Path, description = "Its name.")),
    responses((status = 200, description = "The schedule as it is now.", body = ScheduleView))
)]
pub async fn resume_schedule(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ScheduleName>,
    _: NoBody,
) -> Result<Json<ScheduleView>, Failure> {
    let answer = pause::pause(&engine, &caller, &name, Firing::Resumed).await?;
    Ok(Json(answer))
}
