//! One line and three metrics per request: who, which route, how it ended, how long. No bodies, no keys, no query.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use axum::{
    extract::{ConnectInfo, MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use http::Method;
use tidegate_model::{KeyId, TenantId};
use tracing::Instrument;

use super::request_id::RequestId;
use crate::listen::Proxies;

/// What the gate learned of the caller, for the log.
#[derive(Debug, Clone)]
pub struct CallerSeen {
    /// The key.
    pub key: KeyId,
    /// Its tenant.
    pub tenant: Option<TenantId>,
}

/// Logs and counts a request. Labels are taken from the route table and a short list of methods, never from what a
/// client sent, so that their number is bounded (O-35).
pub async fn record(State(proxies): State<Arc<Proxies>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = method_label(request.method());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "other".to_owned(), |path| path.as_str().to_owned());
    let id = request
        .extensions()
        .get::<RequestId>()
        .map(|id| id.0.clone())
        .unwrap_or_default();
    let peer = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|info| info.0.ip());
    let client = peer.map(|peer| proxies.client(peer, request.headers()));
    let span = tracing::info_span!("request", request_id = %id, tenant = tracing::field::Empty);
    metrics::gauge!("tidegate_http_requests_in_flight").increment(1.0);
    let _in_flight = InFlight;
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    let seconds = started.elapsed().as_secs_f64();
    let labels = [("method", method.to_owned()), ("route", route.clone())];
    metrics::histogram!("tidegate_http_request_duration_seconds", &labels).record(seconds);
    metrics::counter!("tidegate_http_requests_total", "method" => method, "route" => route.clone(), "status" => status.to_string())
        .increment(1);
    let seen = response.extensions().get::<CallerSeen>();
    let _entered = span.enter();
    tracing::info!(
        target: "tidegate::access",
        method,
        route,
        status,
        duration_ms = seconds * 1000.0,
        client = client.map(tracing::field::display),
        key_id = seen.map(|seen| tracing::field::display(seen.key)),
        tenant_id = seen.and_then(|seen| seen.tenant.as_ref()).map(tracing::field::display),
        "answered"
    );
    response
}

/// Counts down also where the client leaves and the future is dropped.
struct InFlight;

impl Drop for InFlight {
    fn drop(&mut self) {
        metrics::gauge!("tidegate_http_requests_in_flight").decrement(1.0);
    }
}

fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "other",
    }
}
