//! A body that goes out at its reader's pace, and not at all to one that does not read.
//!
//! What is not asked for is not made: the next piece is polled for when the connection has taken the last one. Pieces are
//! small, so that a slow reader is seen to read, and that what a connection holds of a large event is small too. A reader
//! that takes none for too long loses its stream, and all that the stream holds is free at once: over HTTP/2 the
//! connection lives on for other streams and would keep it for ever.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::BodyDataStream;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use tidegate_engine::events::open::OpenStream;
use tokio::time::{Instant, sleep};

/// The most bytes that are handed to the connection at once.
const PIECE_MAX_BYTES: usize = 16 << 10;
/// Looks at a reader within the time that it may stall.
const LOOKS: u32 = 8;

/// A stream's body, cut into pieces, with its place among the open streams.
pub struct Paced {
    state: Arc<Mutex<State>>,
}

struct State {
    source: Option<(BodyDataStream, OpenStream)>,
    rest: Bytes,
    /// Since when a piece is out and the next one has not been asked for.
    handed_out: Option<Instant>,
    stalled: bool,
}

impl Paced {
    /// A body whose reader may stall this long.
    pub fn new(source: BodyDataStream, place: OpenStream, stall: Duration) -> Self {
        let state = Arc::new(Mutex::new(State {
            source: Some((source, place)),
            rest: Bytes::new(),
            handed_out: None,
            stalled: false,
        }));
        tokio::spawn(watch(Arc::downgrade(&state), stall));
        Self { state }
    }
}

/// Cuts the stream off when its reader has stalled; ends with the stream.
async fn watch(state: Weak<Mutex<State>>, stall: Duration) {
    loop {
        sleep(stall / LOOKS).await;
        let Some(state) = state.upgrade() else { return };
        let mut state = state.lock();
        if state.source.is_none() {
            return;
        }
        if state.handed_out.is_some_and(|at| at.elapsed() >= stall) {
            state.stalled = true;
            state.rest = Bytes::new();
            let held = state.source.take();
            drop(state);
            drop(held);
            metrics::counter!("tidegate_event_streams_stalled_total").increment(1);
            tracing::debug!("an event stream was cut: its reader takes nothing");
            return;
        }
    }
}

impl State {
    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, axum::Error>>> {
        self.handed_out = None;
        if std::mem::take(&mut self.stalled) {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the reader took nothing");
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        }
        while self.rest.is_empty() {
            let Some((source, _)) = &mut self.source else {
                return Poll::Ready(None);
            };
            match std::task::ready!(source.poll_next_unpin(context)) {
                Some(Ok(bytes)) => self.rest = bytes,
                end => {
                    self.source = None;
                    return Poll::Ready(end);
                }
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE_MAX_BYTES));
        self.handed_out = Some(Instant::now());
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Stream for Paced {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.state.lock().next(context)
    }
}
