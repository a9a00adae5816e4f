//! A run's events as a stream that resumes by itself (R4.6).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use eventsource_stream::{Event, EventStreamError, Eventsource};
use futures::{Stream, StreamExt, stream::BoxStream};
use http::{HeaderMap, HeaderValue, header};
use tidegate_model::{RunId, api::RunEvent, event::EventKind};
use tokio::time::{Instant, sleep, timeout};

use crate::{Client, Error, Result, request::Call, retry::Next};

type Frames = BoxStream<'static, std::result::Result<Event, EventStreamError<String>>>;

/// An open connection.
struct Open {
    frames: Frames,
    /// What was read so far ends with a whole event; not so where a comment says that the server cut the stream.
    whole: Arc<AtomicBool>,
}

/// The events of one run, in order and without a gap, until the run has ended.
///
/// A dead letter that is put back goes on after its `run.ended`; the server's stream says which end is the last one.
/// A connection that breaks off is opened again after the last event that was seen. The overall deadline of the client
/// counts the time without any event *while the server cannot be reached*; a quiet run is waited for as long as it lives.
pub struct RunEvents {
    client: Client,
    run_id: RunId,
    last_seq: i64,
    open: Option<Open>,
    /// Events seen on the open connection.
    seen_here: u64,
    failing: Option<(Instant, u32)>,
    /// The run had ended before the open connection was opened.
    ended_before: bool,
    /// The last event that was given out is `run.ended`.
    ended: bool,
    over: bool,
}

impl std::fmt::Debug for RunEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunEvents")
            .field("run_id", &self.run_id)
            .field("last_seq", &self.last_seq)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// `GET /v1/runs/{id}/events`: everything after event `after_seq` (0 = from the start).
    pub fn run_events(&self, run_id: RunId, after_seq: i64) -> RunEvents {
        RunEvents {
            client: self.clone(),
            run_id,
            last_seq: after_seq,
            open: None,
            seen_here: 0,
            failing: None,
            ended_before: false,
            ended: false,
            over: false,
        }
    }
}

impl RunEvents {
    /// The number of the last event that was given out.
    pub fn last_seq(&self) -> i64 {
        self.last_seq
    }

    /// The next event; `None` after the run has ended. May be dropped while waiting, nothing is lost by it.
    pub async fn next(&mut self) -> Option<Result<RunEvent>> {
        loop {
            if self.over {
                return None;
            }
            match self.step().await {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => {}
                Err(error) => {
                    self.open = None;
                    let broken = matches!(error, Error::BadAnswer { .. });
                    if let Err(error) = self.wait_after(error).await {
                        self.over = true;
                        // The end is known; only whether the run was put back since cannot be asked.
                        return (broken || !self.ended).then_some(Err(error));
                    }
                }
            }
        }
    }

    /// The same as a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<RunEvent>> + Send + Unpin + 'static {
        Box::pin(futures::stream::unfold(self, async |mut events| {
            events.next().await.map(|event| (event, events))
        }))
    }

    async fn step(&mut self) -> Result<Option<RunEvent>> {
        if self.open.is_none() {
            self.open = Some(connect(&self.client, self.run_id, self.last_seq).await?);
            self.seen_here = 0;
        }
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        match open.frames.next().await {
            Some(Ok(frame)) => self.read(&frame),
            Some(Err(error)) => Err(self.client.transport(describe(&error))),
            None => self.closed().await,
        }
    }

    fn read(&mut self, frame: &Event) -> Result<Option<RunEvent>> {
        let event: RunEvent =
            serde_json::from_str(&frame.data).map_err(|error| Error::BadAnswer {
                detail: format!("event {} of {}: {error}", frame.id, self.run_id),
            })?;
        if event.seq <= self.last_seq {
            return Ok(None);
        }
        if event.seq != self.last_seq + 1 {
            return Err(Error::BadAnswer {
                detail: format!(
                    "the stream of {} jumped from event {} to {}",
                    self.run_id, self.last_seq, event.seq
                ),
            });
        }
        self.last_seq = event.seq;
        self.seen_here += 1;
        self.ended = event.kind == EventKind::RunEnded;
        self.ended_before = false;
        self.failing = None;
        Ok(Some(event))
    }

    /// A server that drains ends its streams, and one whose run has nothing more to say does too; the latter says nothing
    /// after `run.ended`.
    async fn closed(&mut self) -> Result<Option<RunEvent>> {
        let open = self.open.take();
        if self.ended && open.is_some_and(|open| open.whole.load(Ordering::Relaxed)) {
            self.over = true;
            return Ok(None);
        }
        if self.seen_here > 0 {
            return Ok(None);
        }
        if self.ended_before {
            self.over = true;
            return Ok(None);
        }
        self.ended_before = self.client.run(self.run_id).await?.state.is_ended();
        if self.ended_before {
            return Ok(None);
        }
        Err(self.client.transport("the stream ended before the run"))
    }

    /// Waits before the connection is opened again, unless the error is final or time is up.
    async fn wait_after(&mut self, error: Error) -> Result<()> {
        let (since, attempts) = self.failing.unwrap_or((Instant::now(), 0));
        let attempts = attempts + 1;
        self.failing = Some((since, attempts));
        let deadline = self.client.deadline;
        let left = deadline.saturating_sub(since.elapsed());
        let unit = self.client.shared.dice.unit();
        match self.client.retry.decide(&error, attempts, left, unit) {
            Next::GiveUp => Err(error),
            Next::OutOfTime => Err(Error::DeadlineExceeded {
                deadline,
                attempts,
                last: Some(Box::new(error)),
            }),
            Next::HintTooLate(retry_after) => Err(Error::RetryAfterDeadline {
                retry_after,
                deadline,
                attempts,
                source: Box::new(error),
            }),
            Next::After(wait) => {
                sleep(wait).await;
                Ok(())
            }
        }
    }
}

/// Opens the stream after event `last_seq`.
async fn connect(client: &Client, run_id: RunId, last_seq: i64) -> Result<Open> {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("text/event-stream"),
    );
    if last_seq > 0 {
        headers.insert("last-event-id", HeaderValue::from(last_seq));
    }
    let call = Call::get(format!("/v1/runs/{run_id}/events"));
    let response = timeout(client.shared.try_timeout, client.open(&call, headers))
        .await
        .map_err(|_| client.transport("no answer in time"))??;
    let idle = client.shared.stream_idle_timeout;
    let bytes = Box::pin(response.bytes_stream());
    let watched = futures::stream::unfold(Some(bytes), move |bytes| next_chunk(bytes, idle));
    let whole = Arc::new(AtomicBool::new(false));
    let (mut lines, seen) = (Lines::default(), Arc::clone(&whole));
    let watched = watched.inspect(move |chunk| {
        if let Ok(bytes) = chunk {
            lines.read(bytes);
            seen.store(lines.whole, Ordering::Relaxed);
        }
    });
    let frames = watched.eventsource().boxed();
    Ok(Open { frames, whole })
}

/// What the parser of events does not tell: whether the last thing that was read is a whole event, not a comment.
#[derive(Debug, Default)]
struct Lines {
    within: bool,
    comment: bool,
    whole: bool,
}

impl Lines {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => {
                    if !self.within {
                        self.whole = !self.comment;
                    }
                    self.within = false;
                }
                _ if self.within => {}
                first => {
                    self.within = true;
                    self.comment = *first == b':';
                    self.whole = false;
                }
            }
        }
    }
}

type Chunk = std::result::Result<bytes::Bytes, String>;

/// The next piece, or an error when the connection was silent for too long; nothing after an error.
async fn next_chunk<S>(bytes: Option<S>, idle: Duration) -> Option<(Chunk, Option<S>)>
where
    S: Stream<Item = reqwest::Result<bytes::Bytes>> + Unpin,
{
    let mut bytes = bytes?;
    match timeout(idle, bytes.next()).await {
        Ok(Some(Ok(chunk))) => Some((Ok(chunk), Some(bytes))),
        Ok(Some(Err(error))) => Some((Err(crate::request::reason(&error)), None)),
        Ok(None) => None,
        Err(_) => Some((Err(format!("silent for {} s", idle.as_secs_f64())), None)),
    }
}

fn describe(error: &EventStreamError<String>) -> String {
    match error {
        EventStreamError::Transport(reason) => reason.clone(),
        EventStreamError::Utf8(_) | EventStreamError::Parser(_) => {
            "the stream is not a stream of events".to_owned()
        }
    }
}
