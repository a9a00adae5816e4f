//! `GET /v1/admin/revisions`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, ops};
use tidegate_model::api::{Page, PageQuery, RevisionView};

use crate::{
    extract::{Caller, QueryOf},
    problem::Failure,
};

/// Numbered changes of the configuration and since when each is in force everywhere.
#[utoipa::path(
    get,
    path = "/v1/admin/revisions",
    tag = "admin",
    operation_id = "list_revisions",
    params(PageQuery),
    responses((status = 200, description = "A page of revisions.", body = Page<RevisionView>))
)]
pub async fn list_revisions(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<Page<RevisionView>>, Failure> {
    let answer = ops::revisions(&engine, &caller, &query).await?;
    Ok(Json(answer))
}
