//! `GET /v1/runs`.

use axum::{Json, extract::State};
use tidegate_engine::{Engine, runs::list};
use tidegate_model::api::{Page, RunFilter, RunView};

use crate::{
    extract::{Caller, QueryOf},
    problem::Failure,
};

/// The tenant's runs, newest first.
#[utoipa::path(
    get,
    path = "/v1/runs",
    tag = "runs",
    operation_id = "list_runs",
    params(RunFilter),
    responses((status = 200, description = "A page of runs.", body = Page<RunView>))
)]
pub async fn list_runs(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    QueryOf(query): QueryOf<RunFilter>,
) -> Result<Json<Page<RunView>>, Failure> {
    let answer = list::list(&engine, &caller, query).await?;
    Ok(Json(answer))
}
