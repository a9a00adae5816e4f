//! `DELETE /v1/admin/resources/{resource}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{api::ResourceView, contracts::ResourceName};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// Removes a resource: it admits nothing new, and goes with its last grant (R7.5).
#[utoipa::path(
    delete,
    path = "/v1/admin/resources/{resource}",
    tag = "admin",
    operation_id = "delete_resource",
    params(("resource" = ResourceName, Path, description = "Its name; a slash in it is sent as `%2F`.")),
    responses((status = 200, description = "As it is now.", body = ResourceView))
)]
pub async fn delete_resource(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ResourceName>,
) -> Result<Json<ResourceView>, Failure> {
    let answer = admissions::remove_resource(&engine, &caller, &name).await?;
    Ok(Json(answer))
}
