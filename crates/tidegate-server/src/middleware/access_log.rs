//! One line and three metrics per request: who, which route, how it ended, how long. No bodies, no keys, no query.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use axum::{
    extract::{ConnectInfo, MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use http::Method;
use tidegate_model::KeyId;
use tracing::Instrument;

use super::request_id::RequestId;
use crate::listen::Proxies;

/// What the gate learned of the caller, for the log.
#[derive(Debug, Clone)]
pub struct CallerSeen {
    /// The key.
    pub key: KeyId,
}

/// Logs and counts a request. Labels are taken from the route table and a short list of methods, never from what a
/// client sent, so that their number is bounded (O-35).
pub async fn record(State(proxies): State<Arc<Proxies>>, request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    let id = extensions.get::<RequestId>().map(|id| id.0.clone());
    let peer = extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map(|info| info.0.ip());
    let route = extensions
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let span = tracing::info_span!(
        "request",
        request_id = id.unwrap_or_default(),
        tenant_id = tracing::field::Empty
    );
    let mut line = Line {
        started: Instant::now(),
        method: method_label(request.method()),
        route: route.unwrap_or_else(|| "other".to_owned()),
        client: peer.map(|peer| proxies.client(peer, request.headers())),
        span: span.clone(),
        answered: None,
    };
    metrics::gauge!("tidegate_http_requests_in_flight").increment(1.0);
    let response = next.run(request).instrument(span).await;
    let seen = response.extensions().get::<CallerSeen>().cloned();
    line.answered = Some((response.status().as_u16(), seen));
    response
}

/// One request; written when it is dropped, so that a request whose client left before the answer is written too.
struct Line {
    started: Instant,
    method: &'static str,
    route: String,
    client: Option<IpAddr>,
    span: tracing::Span,
    answered: Option<(u16, Option<CallerSeen>)>,
}

impl Drop for Line {
    fn drop(&mut self) {
        metrics::gauge!("tidegate_http_requests_in_flight").decrement(1.0);
        let seconds = self.started.elapsed().as_secs_f64();
        let (status, seen) = match self.answered.take() {
            Some((status, seen)) => (status.to_string(), seen),
            None => ("left".to_owned(), None),
        };
        let route = || self.route.clone();
        metrics::histogram!("tidegate_http_request_duration_seconds", "method" => self.method, "route" => route())
            .record(seconds);
        metrics::counter!("tidegate_http_requests_total", "method" => self.method, "route" => route(), "status" => status.clone())
            .increment(1);
        let _entered = self.span.enter();
        tracing::info!(
            target: "tidegate::access",
            method = self.method,
            route = self.route,
            status,
            duration_ms = seconds * 1000.0,
            client = self.client.map(tracing::field::display),
            key_id = seen.map(|seen| tracing::field::display(seen.key)),
            "request"
        );
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
