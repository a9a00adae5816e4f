//! A run's events as server-sent events (R4.6): `id` is the event's number, so that a reader resumes where it stopped.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures::{Stream, StreamExt, future, stream};
use http::{HeaderName, HeaderValue, header};
use tidegate_engine::{Error, events::open::OpenStream};
use tidegate_model::{RunId, api::RunEvent};

use crate::{extract::Credential, paced::Paced, shutdown::Shutdown, state::AppState};

/// A comment this often shows that the connection lives.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// What a reader waits before it connects again.
const RETRY: Duration = Duration::from_secs(1);
/// Names the run of a stream that began with a submission.
const RUN_HEADER: HeaderName = HeaderName::from_static("x-tidegate-run");

/// Why a stream ends before its run.
enum Cut {
    Draining,
    Revoked,
    Failed(Error),
}

impl Cut {
    fn describe(&self) -> String {
        match self {
            Self::Draining => "the server is draining".to_owned(),
            Self::Revoked => "the key was revoked or has run out".to_owned(),
            Self::Failed(error) => error.problem().code.to_string(),
        }
    }
}

/// Streams events until the run has ended, the client leaves, its key is revoked or the server drains. What ends early
/// ends with a comment; the reader connects again, here or elsewhere, with the id of the last event it has. A reader that
/// takes nothing for too long is cut off without a word, since it would not take that either.
pub fn respond<S>(
    state: &AppState,
    credential: Credential,
    place: OpenStream,
    run: RunId,
    after: i64,
    events: S,
) -> Response
where
    S: Stream<Item = Result<RunEvent, Error>> + Send + 'static,
{
    let cut = cut(
        state.shutdown.clone(),
        credential.revoked(state.engine.clone()),
    );
    let first = stream::once(future::ready(
        Event::default().retry(RETRY).comment("resumable"),
    ));
    let frames = first
        .chain(frames(after, events, cut))
        .map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(HEARTBEAT).text("alive");
    let stall = Duration::from_millis(state.engine.settings().client_stall_ms.into());
    let whole = Sse::new(frames).keep_alive(keep_alive).into_response();
    let mut response =
        whole.map(|body| Body::from_stream(Paced::new(body.into_data_stream(), place, stall)));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies gather a stream until their buffer is full unless told not to.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    if let Ok(value) = HeaderValue::from_str(&run.to_string()) {
        headers.insert(RUN_HEADER, value);
    }
    response
}

async fn cut(shutdown: Shutdown, revoked: impl Future<Output = ()>) -> Cut {
    tokio::select! {
        () = shutdown.draining().cancelled() => Cut::Draining,
        () = revoked => Cut::Revoked,
    }
}

/// Events as frames; after the first cut one comment and nothing more. The end of the run is the end of `events`.
fn frames<S>(
    after: i64,
    events: S,
    cut: impl Future<Output = Cut> + Send + 'static,
) -> impl Stream<Item = Event> + Send
where
    S: Stream<Item = Result<RunEvent, Error>> + Send + 'static,
{
    let state = (Box::pin(events), Box::pin(cut), after, false);
    stream::unfold(state, |(mut events, mut cut, last, over)| async move {
        if over {
            return None;
        }
        // In this order: what was read already is sent before the stream is cut.
        let item = tokio::select! {
            biased;
            item = events.next() => item?.map_err(Cut::Failed),
            why = &mut cut => Err(why),
        };
        Some(match item {
            Ok(event) => (event_frame(&event), (events, cut, event.seq, false)),
            Err(why) => {
                let why = why.describe();
                tracing::debug!(last, why, "an event stream was cut");
                let text = format!("{why}; resume with Last-Event-ID {last}");
                (Event::default().comment(text), (events, cut, last, true))
            }
        })
    })
}

fn event_frame(event: &RunEvent) -> Event {
    let frame = Event::default()
        .id(event.seq.to_string())
        .event(event.kind.as_str());
    frame.json_data(event).unwrap_or_else(|error| {
        // Everything in an event came from JSON, so it can be written as JSON.
        tracing::error!(%error, "an event cannot be written");
        Event::default().comment("an event cannot be written")
    })
}
