//! `GET /v1/admin/keys`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, keys};
use tidegate_model::api::{KeyView, Page, PageQuery};

use crate::{
    extract::{Caller, QueryOf},
    problem::Failure,
};

/// Keys without their secrets.
#[utoipa::path(
    get,
    path = "/v1/admin/keys",
    tag = "admin",
    operation_id = "list_keys",
    params(PageQuery),
    responses((status = 200, description = "A page of keys.", body = Page<KeyView>))
)]
pub async fn list_keys(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<KeyView>>, Failure> {
    let answer = keys::list(&engine, &caller, &query).await?;
    Ok(Json(answer))
}
