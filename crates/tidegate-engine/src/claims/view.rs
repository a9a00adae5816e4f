//! Reading the lanes: by a cursor, in chunks, never longer than a fifth of the time.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tidegate_store::lanes::LaneKey;

use super::Share;
use crate::{Engine, Error};

/// The lanes of one reading.
const CHUNK: i32 = 500;
/// Readings are at least this far apart, whatever is reported.
const REREAD_MIN: Duration = Duration::from_millis(20);
/// A reading that took long is followed by the next one that much later, so that reading takes a fifth of the time at
/// most.
const REREAD_FACTOR: u32 = 4;
/// How many runs behind a head are looked at for their age where fairness is off.
const UPCOMING_WITHOUT_FAIRNESS: u32 = 100;

/// Where the cursor stands.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    after: Option<LaneKey>,
    /// When the last chunk was read, and how long that took.
    last: Option<(Instant, Duration)>,
    /// Lanes that the last whole round saw, and this one so far.
    seen: (usize, usize),
    /// Whether a round has been finished.
    complete: bool,
    /// Rounds that are owed because something has changed that nobody said precisely.
    owed: bool,
}

impl Reader {
    /// How long until the next chunk is to be read.
    fn pause(&self, view_age: Duration) -> Duration {
        let Some((at, took)) = self.last else {
            return Duration::ZERO;
        };
        if !self.complete {
            // The first round is read in one go: a claim must not take the first chunk for the whole.
            return Duration::ZERO;
        }
        let least = REREAD_MIN.max(took * REREAD_FACTOR);
        let pause = if self.owed {
            least
        } else {
            let chunks = u32::try_from(self.seen.0).unwrap_or(u32::MAX) / CHUNK.unsigned_abs() + 1;
            least.max(view_age / chunks)
        };
        pause.saturating_sub(at.elapsed())
    }
}

impl Engine {
    /// Reads on where it is time to. Every lane is at most `view_age_ms` old, or five times as old as a reading of all
    /// lanes takes; how long until more is owed.
    pub(crate) async fn read_lanes(&self) -> Result<Option<Duration>, Error> {
        let claims = self.claims();
        claims.used.store(true, Ordering::Release);
        let mut reader = match claims.reader.try_lock() {
            Ok(reader) => reader,
            // Somebody reads. Only who knows nothing at all waits for that.
            Err(_) if claims.is_complete() => return Ok(None),
            Err(_) => claims.reader.lock().await,
        };
        if !reader.complete {
            let scope = &self.settings().execution_scope;
            let floor = self.store().fleet().pass_floor(scope).await?;
            claims.book.lock().passes().absorb_floor(floor);
        }
        if claims.take_stale() {
            reader.owed = true;
            reader.after = None;
            reader.seen.1 = 0;
        }
        while reader.pause(claims.view_age).is_zero() {
            self.read_chunk(&mut reader).await?;
            if reader.complete && !reader.owed {
                break;
            }
        }
        let owed = reader.owed.then(|| reader.pause(claims.view_age));
        Ok(owed)
    }

    async fn read_chunk(&self, reader: &mut Reader) -> Result<(), Error> {
        let upcoming = if self.settings().run_fairness {
            0
        } else {
            UPCOMING_WITHOUT_FAIRNESS
        };
        let started = Instant::now();
        let known = self.claims().book.lock().learned();
        let chunk = self
            .store()
            .fleet()
            .lane_views(
                &self.settings().execution_scope,
                reader.after.as_ref(),
                CHUNK,
                upcoming,
            )
            .await?;
        reader.last = Some((Instant::now(), started.elapsed()));
        let tiers = self.tiers().await?;
        self.claims()
            .book
            .lock()
            .read(reader.after.as_ref(), &chunk, known, |tenant| {
                Share::of(&tiers, tenant)
            });
        reader.seen.1 += chunk.lanes.len();
        reader.after = chunk.next;
        if reader.after.is_none() {
            reader.seen = (reader.seen.1, 0);
            reader.owed = false;
            reader.complete = true;
            self.claims().set_complete();
        }
        Ok(())
    }
}
