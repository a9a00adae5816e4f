//! `DELETE /v1/schedules/{name}`.

use axum::extract::State;
use http::StatusCode;
use tidegate_engine::{Engine, schedules::delete};
use tidegate_model::ids::ScheduleName;

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// Removes a schedule. Its runs stay, those that are open too.
#[utoipa::path(
    delete,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    operation_id = "delete_schedule",
    params(("name" = ScheduleName, Path, description = "Its name.")),
    responses((status = 204, description = "Removed."))
)]
pub async fn delete_schedule(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ScheduleName>,
) -> Result<StatusCode, Failure> {
    delete::delete(&engine, &caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
