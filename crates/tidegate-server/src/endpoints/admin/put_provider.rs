//! `PUT /v1/admin/providers/{name}`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, catalog};
use tidegate_model::{
    api::{ProviderView, PutProvider},
    ids::CatalogName,
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Creates or replaces a model provider.
#[utoipa::path(
    put,
    path = "/v1/admin/providers/{name}",
    tag = "admin",
    operation_id = "put_provider",
    params(("name" = CatalogName, Path, description = "Its name in the catalogue.")),
    request_body = PutProvider,
    responses((status = 200, description = "As stored; secrets are not shown.", body = ProviderView))
)]
pub async fn put_provider(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<CatalogName>,
    JsonBody(body): JsonBody<PutProvider>,
) -> Result<Json<ProviderView>, Failure> {
    let answer = catalog::put_provider(&engine, &caller, name, body).await?;
    Ok(Json(answer))
}
