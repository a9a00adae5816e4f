//! `GET /v1/admin/resources/{resource}/holders`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::{api::HolderView, contracts::ResourceName};

use crate::{
    extract::{Caller, PathId},
    problem::Failure,
};

/// Who holds a resource: at most 200, those first that have held it longest.
#[utoipa::path(
    get,
    path = "/v1/admin/resources/{resource}/holders",
    tag = "admin",
    operation_id = "list_holders",
    params(("resource" = ResourceName, Path, description = "Its name; a slash in it is sent as `%2F`.")),
    responses((status = 200, description = "The holders.", body = Vec<HolderView>))
)]
pub async fn list_holders(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(name): PathId<ResourceName>,
) -> Result<Json<Vec<HolderView>>, Failure> {
    let answer = admissions::list_holders(&engine, &caller, &name).await?;
    Ok(Json(answer))
}
