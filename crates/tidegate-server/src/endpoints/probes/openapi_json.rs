//! `GET /openapi.json`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;

use crate::state::AppState;

/// The contract of all routes, made from the code that serves them.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "probes",
    responses((status = 200, description = "OpenAPI 3.1.", body = serde_json::Value))
)]
pub async fn openapi_json(State(state): State<AppState>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, state.contract).into_response()
}
