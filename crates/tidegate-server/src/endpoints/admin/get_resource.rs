//! `GET /v1/admin/resources/{resource}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{api::ResourceView, contracts::ResourceName};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// A resource of the ledger.
#[utoipa::path(
    get,
    path = "/v1/admin/resources/{resource}",
    tag = "admin",
    operation_id = "get_resource",
    params(("resource" = ResourceName, Path, description = "Its name; a slash in it is sent as `%2F`.")),
    responses((status = 200, description = "As it is now.", body = ResourceView))
)]
pub async fn get_resource(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ResourceName>,
) -> Result<Json<ResourceView>, Failure> {
    let answer = admissions::get_resource(&engine, &caller, &name).await?;
    Ok(Json(answer))
}
