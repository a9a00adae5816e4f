//! `GET /v1/schedules`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, schedules::list};
use tidegate_model::api::{Page, PageQuery, ScheduleView};

use crate::{
    extract::{Caller, QueryOf},
    problem::Failure,
};

/// The tenant's schedules by name.
#[utoipa::path(
    get,
    path = "/v1/schedules",
    tag = "schedules",
    operation_id = "list_schedules",
    params(PageQuery),
    responses((status = 200, description = "A page of schedules.", body = Page<ScheduleView>))
)]
pub async fn list_schedules(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<ScheduleView>>, Failure> {
    let answer = list::list(&engine, &caller, &query).await?;
    Ok(Json(answer))
}
