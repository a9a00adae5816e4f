//! `GET /v1/admin/models`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, catalog};
use tidegate_model::api::{ModelView, Page, PageQuery};

use crate::{
    extract::{Caller, QueryOf},
    page,
    problem::Failure,
};

/// The catalogue: a model per item.
#[utoipa::path(
    get,
    path = "/v1/admin/models",
    tag = "admin",
    operation_id = "list_models",
    params(PageQuery),
    responses((status = 200, description = "A page of the catalogue.", body = Page<ModelView>))
)]
pub async fn list_models(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<ModelView>>, Failure> {
    let items = catalog::list_models(&engine, &caller).await?;
    let page = page::cut(items, &query, |item| item.name.to_string())?;
    Ok(Json(page))
}
