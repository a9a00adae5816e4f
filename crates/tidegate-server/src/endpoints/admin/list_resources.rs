//! `GET /v1/admin/resources`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, admissions};
use tidegate_model::api::{Page, PageQuery, ResourceView};

use crate::{
    extract::{Caller, QueryOf},
    problem::Failure,
};

/// Resources of the ledger by name.
#[utoipa::path(
    get,
    path = "/v1/admin/resources",
    tag = "admin",
    operation_id = "list_resources",
    params(PageQuery),
    responses((status = 200, description = "A page of resources.", body = Page<ResourceView>))
)]
pub async fn list_resources(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<ResourceView>>, Failure> {
    let answer = admissions::list_resources(&engine, &caller, &query).await?;
    Ok(Json(answer))
}
