//! Writes under `Idempotency-Key` (R3.1): the key becomes the intent of the caller, and an earlier answer is marked.
//!
//! The body is read here, because its digest is part of the intent, and handed on whole.

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue};
use tidegate_engine::{Engine, Principal, repeats};

use crate::{
    extract::{idempotency_key, whole},
    problem::Failure,
    routes::{Repeats, Route},
};

/// Marks an answer that was given before.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Gives the principal its intent where the route keeps its answers by the key.
pub async fn prepare(
    engine: &Engine,
    route: &Route,
    principal: &mut Principal,
    request: Request,
) -> Result<Request, Failure> {
    if route.repeats() != Repeats::Key {
        return Ok(request);
    }
    let Some(key) = idempotency_key(request.headers())? else {
        return Ok(request);
    };
    let (parts, body) = request.into_parts();
    let body = whole(body).await?;
    let target = parts
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    let asked = repeats::Request {
        route: format!("{} {}", route.verb.as_str(), route.path),
        target,
        body: &body,
    };
    principal.intent = Some(engine.intent(principal, key, asked)?);
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Marks the answer of a request that was answered before.
pub fn mark(principal: &Principal, response: Response) -> Response {
    if principal.is_replayed() && response.status().is_success() {
        return replayed(response);
    }
    response
}

/// An answer that was given before.
pub fn replayed(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    let yes = HeaderValue::from_static("true");
    response.headers_mut().insert(REPLAYED, yes);
    response
}
