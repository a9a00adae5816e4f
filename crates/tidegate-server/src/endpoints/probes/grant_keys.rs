//! `GET /.well-known/tidegate-keys`.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;
use tidegate_engine::{Engine, grants};
use tidegate_model::api::PublishedGrantKeys;

use crate::problem::Failure;

/// The public keys of grants, for whoever checks them without asking the server (R9.1). A grant names one of them in its
/// `root_key_id`. They may be kept for as long as `Cache-Control` says: a key is published for longer than that before it
/// signs. Who meets a key that is not in the list reads it again, at most once a second.
#[utoipa::path(
    get,
    path = "/.well-known/tidegate-keys",
    tag = "probes",
    operation_id = "published_grant_keys",
    responses((status = 200, description = "The keys.", body = PublishedGrantKeys))
)]
pub async fn published_grant_keys(State(engine): State<Engine>) -> Result<Response, Failure> {
    let keys = grants::published(&engine).await?;
    let max_age = grants::PUBLISHED_MAX_AGE.as_secs();
    let headers = [(header::CACHE_CONTROL, format!("public, max-age={max_age}"))];
    Ok((headers, Json(keys)).into_response())
}
