//! `PUT /v1/admin/resources/{resource}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{
    api::{PutResource, ResourceView},
    contracts::ResourceName,
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Makes a resource of the ledger, or changes how much there is of it (R7.3, R7.5).
#[utoipa::path(
    put,
    path = "/v1/admin/resources/{resource}",
    tag = "admin",
    operation_id = "put_resource",
    params(("resource" = ResourceName, Path, description = "Its name; a slash in it is sent as `%2F`.")),
    request_body = PutResource,
    responses((status = 200, description = "As it is now.", body = ResourceView))
)]
pub async fn put_resource(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ResourceName>,
    JsonBody(body): JsonBody<PutResource>,
) -> Result<Json<ResourceView>, Failure> {
    let answer = admissions::put_resource(&engine, &caller, name, body).await?;
    Ok(Json(answer))
}
