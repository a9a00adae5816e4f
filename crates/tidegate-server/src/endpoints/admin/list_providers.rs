//! `GET /v1/admin/providers`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, catalog};
use tidegate_model::api::{Page, PageQuery, ProviderView};

use crate::{
    extract::{Caller, QueryOf},
    page,
    problem::Failure,
};

/// The catalogue: a model provider per item.
#[utoipa::path(
    get,
    path = "/v1/admin/providers",
    tag = "admin",
    operation_id = "list_providers",
    params(PageQuery),
    responses((status = 200, description = "A page of the catalogue.", body = Page<ProviderView>))
)]
pub async fn list_providers(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<ProviderView>>, Failure> {
    let items = catalog::list_providers(&engine, &caller).await?;
    let page = page::cut(items, &query, |item| item.name.to_string())?;
    Ok(Json(page))
}
