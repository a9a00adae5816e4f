//! `GET /v1/pools`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, pools};
use tidegate_model::api::{Page, PageQuery, PoolView};

use crate::{
    extract::{Caller, QueryOf},
    page,
    problem::Failure,
};

/// Pools with the epoch in force and all that were published.
#[utoipa::path(
    get,
    path = "/v1/pools",
    tag = "pools",
    operation_id = "list_pools",
    params(PageQuery),
    responses((status = 200, description = "A page of pools.", body = Page<PoolView>))
)]
pub async fn list_pools(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<PoolView>>, Failure> {
    let items = pools::list(&engine, &caller).await?;
    let page = page::cut(items, &query, |item| item.pool_id.to_string())?;
    Ok(Json(page))
}
