//! `GET /metrics`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;

use crate::state::AppState;

/// Metrics in Prometheus' text form; with the scope `metrics:read`, or without a key at the operator's own listener.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "probes",
    responses((status = 200, description = "Metrics.", body = String, content_type = "text/plain"))
)]
pub async fn metrics(State(state): State<AppState>) -> Response {
    let headers = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (headers, state.metrics.render()).into_response()
}
