//! Writes the events of an attempt: numbers them, batches text, repeats what got no answer.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tidegate_model::{
    api::{AppendEvents, NewEvent},
    event::EventKind,
    limits::EVENTS_PER_APPEND_MAX,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use super::held::{Held, Stop};
use crate::{Error, RetryPolicy, WorkerApi, ambient::Dice, limits};

/// The handle of a handler. Events arrive in the order they are given; a slow server makes the giver wait.
#[derive(Debug)]
pub struct EventWriter {
    queue: mpsc::Sender<Item>,
    failed: watch::Receiver<Option<String>>,
    _task: AbortOnDropHandle<()>,
}

enum Item {
    Delta(String),
    Event(EventKind, Value),
    Flush(oneshot::Sender<()>),
}

impl EventWriter {
    pub(super) fn start(
        api: Arc<dyn WorkerApi>,
        held: Arc<Held>,
        next_seq: i64,
        dice: Dice,
    ) -> Self {
        let (queue, items) = mpsc::channel(limits::EVENT_QUEUE);
        let (failure, failed) = watch::channel(None);
        let writer = Writer {
            api,
            held,
            items,
            next_seq,
            ready: Vec::new(),
            text: String::new(),
            deltas: 0,
            text_due: None,
            failure,
            dice,
        };
        Self {
            queue,
            failed,
            _task: AbortOnDropHandle::new(tokio::spawn(writer.run())),
        }
    }

    /// A piece of the reply. Pieces are put together: an event holds at most 40 of them or what came within 100 ms.
    pub async fn delta(&self, text: impl Into<String>) {
        self.put(Item::Delta(text.into())).await;
    }

    /// An event of a kind that a worker may write.
    pub async fn send(&self, kind: EventKind, body: Value) {
        self.put(Item::Event(kind, body)).await;
    }

    /// Waits until everything that was given is written; the error is what the server has against it.
    pub async fn flush(&self) -> Result<(), String> {
        let (done, written) = oneshot::channel();
        self.put(Item::Flush(done)).await;
        let written = written.await;
        match (self.failed.borrow().clone(), written) {
            (Some(reason), _) => Err(reason),
            (None, Ok(())) => Ok(()),
            (None, Err(_)) => Err("the writer of events has ended".to_owned()),
        }
    }

    /// Waits until the server refuses an event for good.
    pub(super) async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        let reason = failed.wait_for(Option::is_some).await;
        let reason = reason.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => reason,
            // The writer ended without a failure: the lease is lost, and that ends the attempt.
            None => std::future::pending().await,
        }
    }

    async fn put(&self, item: Item) {
        // A writer that is gone has said why; the attempt is being stopped for that reason.
        let _gone = self.queue.send(item).await;
    }
}

struct Writer {
    api: Arc<dyn WorkerApi>,
    held: Arc<Held>,
    items: mpsc::Receiver<Item>,
    next_seq: i64,
    /// Numbered, not yet acknowledged.
    ready: Vec<NewEvent>,
    text: String,
    deltas: usize,
    text_due: Option<Instant>,
    failure: watch::Sender<Option<String>>,
    dice: Dice,
}

impl Writer {
    async fn run(mut self) {
        loop {
            let item = tokio::select! {
                item = self.items.recv() => match item {
                    Some(item) => Some(item),
                    None => return,
                },
                () = due(self.text_due) => None,
            };
            let mut flushed = Vec::new();
            match item {
                Some(item) => self.take(item, &mut flushed),
                None => self.seal(),
            }
            while self.ready.len() < EVENTS_PER_APPEND_MAX
                && let Ok(item) = self.items.try_recv()
            {
                self.take(item, &mut flushed);
            }
            if !self.write().await {
                return;
            }
            for done in flushed {
                let _left = done.send(());
            }
        }
    }

    fn take(&mut self, item: Item, flushed: &mut Vec<oneshot::Sender<()>>) {
        match item {
            Item::Delta(more) => {
                self.text.push_str(&more);
                self.deltas += 1;
                self.text_due
                    .get_or_insert_with(|| Instant::now() + limits::DELTA_DELAY);
                if self.deltas >= limits::DELTAS_PER_EVENT
                    || self.text.len() >= limits::APPEND_MAX_BYTES / 8
                {
                    self.seal();
                }
            }
            Item::Event(kind, body) => {
                self.seal();
                self.number(kind, body);
            }
            Item::Flush(done) => {
                self.seal();
                flushed.push(done);
            }
        }
    }

    /// Makes one event of the text so far.
    fn seal(&mut self) {
        self.text_due = None;
        self.deltas = 0;
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            self.number(EventKind::MessageDelta, json!({ "text": text }));
        }
    }

    fn number(&mut self, kind: EventKind, body: Value) {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.ready.push(NewEvent { seq, kind, body });
    }

    /// Writes all that is ready; whether the writer may go on.
    async fn write(&mut self) -> bool {
        while !self.ready.is_empty() {
            let mut size = 0;
            let fits = self
                .ready
                .iter()
                .take(EVENTS_PER_APPEND_MAX)
                .take_while(|event| {
                    size += event.body.to_string().len();
                    size <= limits::APPEND_MAX_BYTES
                });
            let count = fits.count().max(1);
            let events: Vec<_> = self.ready.drain(..count).collect();
            if !self.append(events).await {
                return false;
            }
        }
        true
    }

    async fn append(&self, events: Vec<NewEvent>) -> bool {
        let policy = RetryPolicy {
            max_tries: u32::MAX,
            base: Duration::from_millis(100),
            max: Duration::from_secs(2),
        };
        let (run_id, fence) = (self.held.lease.run_id, self.held.lease.fence);
        let request = AppendEvents { fence, events };
        for tries in 1.. {
            if !self.held.is_held() {
                self.held.raise(Stop::Lost);
                return false;
            }
            match self.api.append_events(run_id, request.clone()).await {
                Ok(()) => return true,
                Err(error) if error.is_lease_lost() => {
                    self.held.raise(Stop::Lost);
                    return false;
                }
                Err(error) if may_pass(&error) => {
                    tracing::debug!(%run_id, tries, %error, "repeating an append of events");
                    sleep(policy.backoff(tries, self.dice.unit())).await;
                }
                Err(error) => {
                    tracing::warn!(%run_id, %error, "the server refuses events of an attempt");
                    self.failure.send_replace(Some(error.to_string()));
                    return false;
                }
            }
        }
        false
    }
}

/// Whether a write of an attempt may pass later, as long as its lease is held.
pub(super) fn may_pass(error: &Error) -> bool {
    error.is_retryable()
        || matches!(
            error,
            // The lease came over this very connection: a certificate or a name that is being changed comes back.
            Error::Setup { .. } | Error::DeadlineExceeded { .. } | Error::RetryAfterDeadline { .. }
        )
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
