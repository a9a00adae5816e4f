//! No request waits without bound: a database that accepts connections and never answers looks like nothing at all from
//! here, and its clients must still be told.
//!
//! The bound covers the handler up to its answer's head; a stream that has begun is not cut. What a handler had begun in
//! the database goes on by itself (a transaction runs in a task of its own), so the answer promises nothing about it.

use std::time::Duration;

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tidegate_model::{Code, api::Problem, limits};
use tokio::time::timeout;

use crate::problem::Failure;

/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// How long one may take that works through many rows.
const BULK: Duration = Duration::from_mins(2);
/// When to try again.
const RETRY_AFTER_MS: u64 = 2_000;

const _: () = assert!(
    REQUEST.as_secs() < BULK.as_secs(),
    "bulk calls get more time"
);

/// Answers `DATABASE_UNAVAILABLE` where the handler has not answered in time.
pub async fn bound(request: Request, next: Next) -> Response {
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str)
        .to_owned();
    let limit = limit_of(&path);
    if let Ok(response) = timeout(limit, next.run(request)).await {
        return response;
    }
    tracing::error!(
        path,
        seconds = limit.as_secs(),
        "a request was not answered in time"
    );
    metrics::counter!("tidegate_http_deadlines_total").increment(1);
    let detail = format!(
        "the database has not answered within {} s; whether the request was carried out is not known: send it again \
         with the same Idempotency-Key, which does nothing twice",
        limit.as_secs()
    );
    let problem = Problem::new(Code::DatabaseUnavailable, detail);
    Failure::from(problem.with_retry_after_ms(RETRY_AFTER_MS)).into_response()
}

fn limit_of(path: &str) -> Duration {
    if path == "/v1/worker/claim" {
        REQUEST + Duration::from_millis(limits::CLAIM_WAIT_MAX_MS)
    } else if path.ends_with(":cancel") || path.ends_with(":requeue") || path.ends_with("/state") {
        BULK
    } else {
        REQUEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_may_wait_as_long_as_it_may_ask_for() {
        let longest = Duration::from_millis(limits::CLAIM_WAIT_MAX_MS);
        assert!(limit_of("/v1/worker/claim") > longest);
        assert_eq!(limit_of("/v1/runs"), REQUEST);
        assert_eq!(limit_of("/v1/runs:cancel"), BULK);
    }
}
