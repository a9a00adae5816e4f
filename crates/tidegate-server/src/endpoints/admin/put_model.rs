//! `PUT /v1/admin/models/{name}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, catalog};
use tidegate_model::{
    api::{ModelView, PutModel},
    ids::CatalogName,
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Creates or replaces a model.
#[utoipa::path(
    put,
    path = "/v1/admin/models/{name}",
    tag = "admin",
    operation_id = "put_model",
    params(("name" = CatalogName, Path, description = "Its name in the catalogue.")),
    request_body = PutModel,
    responses((status = 200, description = "As stored; secrets are not shown.", body = ModelView))
)]
pub async fn put_model(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<CatalogName>,
    JsonBody(body): JsonBody<PutModel>,
) -> Result<Json<ModelView>, Failure> {
    let answer = catalog::put_model(&engine, &caller, name, body).await?;
    Ok(Json(answer))
}
