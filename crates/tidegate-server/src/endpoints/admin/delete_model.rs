//! `DELETE /v1/admin/models/{name}`.

use axum::extract::State;
use http::StatusCode;
use tidegate_engine::{Engine, catalog};
use tidegate_model::ids::CatalogName;

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// Removes a model.
#[utoipa::path(
    delete,
    path = "/v1/admin/models/{name}",
    tag = "admin",
    operation_id = "delete_model",
    params(("name" = CatalogName, Path, description = "Its name in the catalogue.")),
    responses((status = 204, description = "Removed."))
)]
pub async fn delete_model(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<CatalogName>,
) -> Result<StatusCode, Failure> {
    catalog::delete_model(&engine, &caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
