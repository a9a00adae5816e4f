//! `GET /v1/admin/instances`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, ops};
use tidegate_model::api::{InstanceView, Page, PageQuery};

use crate::{
    extract::{Caller, QueryOf},
    page,
    problem::Failure,
};

/// Server processes: what they serve, whether they live.
#[utoipa::path(
    get,
    path = "/v1/admin/instances",
    tag = "admin",
    operation_id = "list_instances",
    params(PageQuery),
    responses((status = 200, description = "A page of instances.", body = Page<InstanceView>))
)]
pub async fn list_instances(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<InstanceView>>, Failure> {
    let items = ops::instances(&engine, &caller).await?;
    let page = page::cut(items, &query, |item| item.instance_id.to_string())?;
    Ok(Json(page))
}
