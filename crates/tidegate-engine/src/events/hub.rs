//! Who waits for which run's events on this instance, and the one poller that reads for all of them.
//!
//! A stream that nobody writes to costs a few microseconds per poll, where a query of its own would cost twenty times
//! as much. A nudge by a local writer makes the poller look at that run at once; events that other instances write are
//! found by the next poll.
//!
//! Readers have no hold on the instance: what waits for a slow one is bounded (few events, none of them large), and all
//! reads of all streams together use a share of the pool, so that renewals, claims and readiness have the rest.
//!
//! Invariant: a stream's cursor only moves from an event to the one that follows it, so that what is handed on has no
//! gap; a subscriber that fell behind reads for itself.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_model::{RunId, TenantId};
use tidegate_store::read::events::{Followed, StreamPosition};
use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit, broadcast},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::open::OpenStreams;
use crate::{Engine, Error, settings::Settings};

/// Between two polls.
const POLL: Duration = Duration::from_millis(200);
/// Streams per statement.
const STREAMS_PER_READ: usize = 200;
/// Events of one stream per statement.
const EVENTS_PER_READ: i64 = 32;
/// Bodies above this are not handed on but read by those who want them, in bytes.
const HANDED_ON_MAX_BYTES: i32 = 4 << 10;
/// Events that a subscriber may be behind before it has to read for itself.
const BEHIND_MAX: usize = 64;
/// What waits for the slow readers of one run, in bytes of the events' text, whatever a worker writes.
const WAITING_MAX_BYTES: usize = 256 << 10;
const _: () =
    assert!(BEHIND_MAX * (HANDED_ON_MAX_BYTES.unsigned_abs() as usize) <= WAITING_MAX_BYTES);
/// One connection in so many may read for streams.
const POOL_SHARE: u32 = 4;

type Key = (TenantId, RunId);

/// The streams of this instance.
#[derive(Debug)]
pub struct EventHub {
    streams: Mutex<HashMap<Key, Stream>>,
    nudged: Notify,
    reads: Semaphore,
    pub(super) open: OpenStreams,
}

#[derive(Debug)]
struct Stream {
    /// The last event that was handed on.
    cursor: i64,
    nudged: bool,
    sender: broadcast::Sender<Arc<Followed>>,
}

/// Which streams a poll looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Nudged,
}

impl EventHub {
    pub(crate) fn new(settings: &Settings) -> Self {
        let reads = (settings.db_pool_size / POOL_SHARE).max(1);
        Self {
            streams: Mutex::default(),
            nudged: Notify::new(),
            reads: Semaphore::new(usize::try_from(reads).unwrap_or(1)),
            open: OpenStreams::new(settings),
        }
    }

    /// The right to one read for a stream, in the order of asking; to be held for that read only.
    pub(super) async fn may_read(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.reads.acquire().await.map_err(|_| Error::Internal {
            what: "the reads of event streams were closed",
        })
    }

    /// How many streams are open.
    pub fn open_streams(&self) -> usize {
        self.open.count()
    }

    /// Tells the streams of a run that it has new events.
    pub fn nudge(&self, tenant: &TenantId, run: RunId) {
        if let Some(stream) = self.streams.lock().get_mut(&(tenant.clone(), run)) {
            stream.nudged = true;
            self.nudged.notify_one();
        }
    }

    /// How many runs are being followed.
    pub fn followed(&self) -> usize {
        self.streams.lock().len()
    }

    /// Joins the stream of a run after event `after`. What was handed on before is not repeated: read once more after
    /// joining.
    pub(crate) fn join(
        &self,
        tenant: &TenantId,
        run: RunId,
        after: i64,
    ) -> broadcast::Receiver<Arc<Followed>> {
        let mut streams = self.streams.lock();
        let stream = streams
            .entry((tenant.clone(), run))
            .or_insert_with(|| Stream {
                cursor: after,
                nudged: false,
                sender: broadcast::channel(BEHIND_MAX).0,
            });
        stream.sender.subscribe()
    }

    /// The positions to read from; forgets streams that nobody follows.
    fn positions(&self, which: Which) -> Vec<StreamPosition> {
        let mut streams = self.streams.lock();
        streams.retain(|_, stream| stream.sender.receiver_count() > 0);
        streams
            .iter_mut()
            .filter_map(|((tenant, run_id), stream)| {
                let nudged = std::mem::take(&mut stream.nudged);
                (nudged || which == Which::All).then(|| StreamPosition {
                    tenant: tenant.clone(),
                    run_id: *run_id,
                    after: stream.cursor,
                })
            })
            .collect()
    }

    /// Hands events on; answers whether some stream may have more.
    fn deliver(&self, events: Vec<(TenantId, RunId, Followed)>) -> bool {
        let mut streams = self.streams.lock();
        let mut more = false;
        let mut counts: HashMap<RunId, i64> = HashMap::new();
        for (tenant, run, event) in events {
            let count = counts.entry(run).or_default();
            *count += 1;
            more |= *count == EVENTS_PER_READ;
            if let Some(stream) = streams.get_mut(&(tenant, run))
                && event.seq() == stream.cursor + 1
            {
                stream.cursor = event.seq();
                // Nobody listening any more is not an error; the next poll forgets the stream.
                let _ = stream.sender.send(Arc::new(event));
            }
        }
        more
    }
}

/// Polls for all streams until told to stop.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut due = Instant::now() + POLL;
    loop {
        let which = tokio::select! {
            () = stop.cancelled() => return,
            () = engine.events().nudged.notified() => Which::Nudged,
            () = tokio::time::sleep_until(due) => Which::All,
        };
        let which = if Instant::now() >= due {
            due = Instant::now() + POLL;
            Which::All
        } else {
            which
        };
        if let Err(error) = poll(&engine, which).await {
            tracing::debug!(%error, "events could not be read; tried again with the next poll");
        }
    }
}

async fn poll(engine: &Engine, which: Which) -> Result<(), Error> {
    let hub = engine.events();
    let mut which = which;
    loop {
        let positions = hub.positions(which);
        if which == Which::All {
            let followed = u32::try_from(positions.len()).unwrap_or(u32::MAX);
            metrics::gauge!("tidegate_followed_runs").set(f64::from(followed));
        }
        let mut more = false;
        for chunk in positions.chunks(STREAMS_PER_READ) {
            let events = engine
                .store()
                .fleet()
                .events_after(chunk, EVENTS_PER_READ, HANDED_ON_MAX_BYTES)
                .await?;
            more |= hub.deliver(events);
        }
        if !more {
            return Ok(());
        }
        which = Which::All;
    }
}
