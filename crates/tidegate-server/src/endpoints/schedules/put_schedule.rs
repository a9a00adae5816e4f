//! `PUT /v1/schedules/{name}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, schedules::put};
use tidegate_model::{
    api::{PutSchedule, ScheduleView},
    ids::ScheduleName,
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Makes or replaces a schedule. It continues from now; whether it is paused stays as it is.
#[utoipa::path(
    put,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    operation_id = "put_schedule",
    params(("name" = ScheduleName, Path, description = "Its name.")),
    request_body = PutSchedule,
    responses((status = 200, description = "As stored, with the next due times.", body = ScheduleView))
)]
pub async fn put_schedule(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ScheduleName>,
    JsonBody(body): JsonBody<PutSchedule>,
) -> Result<Json<ScheduleView>, Failure> {
    let answer = put::put(&engine, &caller, name, body).await?;
    Ok(Json(answer))
}
