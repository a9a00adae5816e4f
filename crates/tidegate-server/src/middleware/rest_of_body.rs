//! What nobody read of a request's body is read and thrown away before the answer leaves.
//!
//! Many clients write their whole body before they read. A connection that is closed over unread bytes is reset, and such
//! a client sees a broken pipe where the answer said what was wrong.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    extract::Request,
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header;
use tokio::sync::oneshot;

/// The most that is thrown away, in bytes; a body that announces more is not read any further.
const DISCARD_MAX_BYTES: usize = 8 << 20;
/// The longest an answer waits for it.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers, but reads what is left of the body first.
pub async fn discard(request: Request, next: Next) -> Response {
    let announced = request.body().size_hint().lower();
    if request.body().is_end_stream() || announced > DISCARD_MAX_BYTES as u64 {
        return next.run(request).await;
    }
    let asks_first = request.headers().contains_key(header::EXPECT);
    let (sender, mut left) = oneshot::channel();
    let request = request.map(|body| {
        Body::from_stream(Watched {
            rest: Some(Rest {
                stream: body.into_data_stream(),
                begun: false,
            }),
            sender: Some(sender),
        })
    });
    let response = next.run(request).await;
    // A client that waits for "100 Continue" has sent nothing yet; reading would ask it to.
    if let Ok(rest) = left.try_recv()
        && (rest.begun || !asks_first)
    {
        // Late or broken, the answer goes out all the same.
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, throw_away(rest.stream)).await;
    }
    response
}

async fn throw_away(mut stream: BodyDataStream) {
    let mut total = 0_usize;
    while let Some(Ok(bytes)) = stream.next().await {
        total = total.saturating_add(bytes.len());
        if total > DISCARD_MAX_BYTES {
            return;
        }
    }
}

/// A body of which something may still arrive.
#[derive(Debug)]
struct Rest {
    stream: BodyDataStream,
    begun: bool,
}

/// A body that is handed back when it is dropped before its end.
#[derive(Debug)]
struct Watched {
    rest: Option<Rest>,
    sender: Option<oneshot::Sender<Rest>>,
}

impl Stream for Watched {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(None);
        };
        rest.begun = true;
        let item = ready!(rest.stream.poll_next_unpin(context));
        if !matches!(item, Some(Ok(_))) {
            self.rest = None;
        }
        Poll::Ready(item)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let (Some(rest), Some(sender)) = (self.rest.take(), self.sender.take()) {
            // Nobody waits where the connection has gone.
            let _ = sender.send(rest);
        }
    }
}
