//! No request waits without bound: a database that accepts connections and never answers looks like nothing at all from
//! here, and its clients must still be told.
//!
//! The bound covers the handler up to its answer's head; a stream that has begun is not cut. While the body is read the
//! clock stands still: that is the client's time, and whoever reads it has a deadline and an answer of its own. What a
//! handler had begun in the database goes on by itself (a transaction runs in a task of its own), so the answer promises
//! nothing about it.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, HttpBody as _},
    extract::{MatchedPath, Request},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use tidegate_model::{Code, api::Problem, limits};
use tokio::sync::watch;

use crate::{
    problem::Failure,
    routes::{self, Repeats, Verb},
};

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
    let repeats = Verb::of(request.method())
        .and_then(|verb| routes::find(verb, &path))
        .map_or(Repeats::Read, routes::Route::repeats);
    let (request, mut reading) = watched(request);
    let mut answer = std::pin::pin!(next.run(request));
    let mut watching = true;
    loop {
        let is_read = *reading.borrow_and_update();
        tokio::select! {
            response = &mut answer => return advised(response, repeats),
            changed = reading.changed(), if watching => watching = changed.is_ok(),
            () = tokio::time::sleep(limit), if !is_read => break,
        }
    }
    tracing::error!(
        path,
        seconds = limit.as_secs(),
        "a request was not answered in time"
    );
    metrics::counter!("tidegate_http_deadlines_total").increment(1);
    advised(late(limit, repeats).into_response(), repeats)
}

fn late(limit: Duration, repeats: Repeats) -> Failure {
    let seconds = limit.as_secs();
    let unknown = match repeats {
        Repeats::Read => "",
        _ => "whether the request was carried out is not known; ",
    };
    let detail = format!(
        "the database has not answered within {seconds} s; {unknown}send the request again"
    );
    let problem = Problem::new(Code::DatabaseUnavailable, detail);
    problem.with_retry_after_ms(RETRY_AFTER_MS).into()
}

/// Says at which routes a repeat wants its key: the engine does not know what was asked, and a key is no help to a read.
fn advised(mut response: Response, repeats: Repeats) -> Response {
    if matches!(repeats, Repeats::Run | Repeats::Key)
        && let Some(problem) = response.extensions_mut().get_mut::<Problem>()
        && problem.code == Code::DatabaseUnavailable
        && let Some(detail) = &mut problem.detail
    {
        detail.push_str(", with the same Idempotency-Key, which does nothing twice");
    }
    response
}

/// The request, and whether somebody is in the middle of reading its body.
fn watched(request: Request) -> (Request, watch::Receiver<bool>) {
    let (sender, reading) = watch::channel(false);
    let request = if request.body().is_end_stream() {
        request
    } else {
        request.map(|body| {
            let body = body.into_data_stream();
            Body::from_stream(Watched { body, sender })
        })
    };
    (request, reading)
}

/// A body that says when somebody begins to read it and when that is over.
#[derive(Debug)]
struct Watched {
    body: BodyDataStream,
    sender: watch::Sender<bool>,
}

impl Watched {
    fn is_read(&self, now: bool) {
        self.sender
            .send_if_modified(|before| std::mem::replace(before, now) != now);
    }
}

impl Stream for Watched {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = self.body.poll_next_unpin(context);
        self.is_read(!matches!(item, Poll::Ready(None | Some(Err(_)))));
        item
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.is_read(false);
    }
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

    #[test]
    fn only_what_has_a_key_is_told_to_keep_it() {
        for (repeats, keyed) in [
            (Repeats::Read, false),
            (Repeats::Fence, false),
            (Repeats::Run, true),
            (Repeats::Key, true),
        ] {
            let response = advised(late(REQUEST, repeats).into_response(), repeats);
            let problem = response.extensions().get::<Problem>().unwrap();
            let detail = problem.detail.as_deref().unwrap();
            assert_eq!(detail.contains("Idempotency-Key"), keyed, "{detail}");
        }
    }
}
