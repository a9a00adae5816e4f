//! `DELETE /v1/admin/providers/{name}`.

use axum::extract::State;
use http::StatusCode;
use tidegate_engine::{Engine, catalog};
use tidegate_model::ids::CatalogName;

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// Removes a model provider.
#[utoipa::path(
    delete,
    path = "/v1/admin/providers/{name}",
    tag = "admin",
    operation_id = "delete_provider",
    params(("name" = CatalogName, Path, description = "Its name in the catalogue.")),
    responses((status = 204, description = "Removed."))
)]
pub async fn delete_provider(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<CatalogName>,
) -> Result<StatusCode, Failure> {
    catalog::delete_provider(&engine, &caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
