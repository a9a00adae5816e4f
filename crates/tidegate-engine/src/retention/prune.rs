//! Pruning ended runs and their events, in batches, on one instance at a time.
//!
//! Not pruned: what is open, trees with anything open, messages of conversations, the audit log.

use std::time::Duration;

use tidegate_store::{
    Fleet,
    attempts::prune::{Batch, Position},
    duties::Duty,
};
use tokio_util::sync::CancellationToken;

use crate::{Engine, Error, settings::Settings, trouble::Trouble};

/// The name of the duty.
const DUTY: &str = "retention";
/// How long a holder keeps the duty; a batch takes a small part of it.
const LEASE_MS: i64 = 60_000;
/// How often the duty looks.
const EVERY: Duration = Duration::from_mins(10);
/// The first pass after a start follows within one to two of these: servers that are restarted more often than the duty
/// looks must not put it off for ever, and those that start together spread.
const FIRST: Duration = Duration::from_secs(30);
/// Between two batches, so that a backlog of months is worked off beside the traffic.
const PAUSE: Duration = Duration::from_millis(50);
/// Runs that one transaction deletes.
const RUNS_PER_BATCH: i64 = 500;
/// Events that one transaction deletes.
const EVENTS_PER_BATCH: i64 = 5_000;
/// Accounts of tenants that one statement deletes.
const PASSES_PER_BATCH: i64 = 1_000;

const DAY_MS: i64 = 24 * 3_600_000;

/// How long things are kept; for ever where absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Ended runs.
    pub runs_ms: Option<i64>,
    /// Events of ended runs.
    pub events_ms: Option<i64>,
    /// Runs that one transaction deletes.
    pub runs_per_batch: i64,
    /// Events that one transaction deletes.
    pub events_per_batch: i64,
}

impl Keep {
    /// As the settings say. Events go no later than their run and before it, so that no batch of runs has to delete
    /// theirs.
    pub fn of(settings: &Settings) -> Self {
        let ms = |days: u32| (days > 0).then_some(i64::from(days) * DAY_MS);
        let runs_ms = ms(settings.run_retention_days);
        let events_ms = ms(settings.run_event_retention_days);
        Self {
            runs_ms,
            events_ms: [events_ms, runs_ms].into_iter().flatten().min(),
            runs_per_batch: RUNS_PER_BATCH,
            events_per_batch: EVENTS_PER_BATCH,
        }
    }
}

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Runs that are gone.
    pub runs: u64,
    /// Events that are gone before their runs.
    pub events: u64,
    /// The most rows that one batch deleted.
    pub largest_batch: u64,
}

/// How long until each pass, from the start on; `jitter` gives numbers from 0 to 1.
struct Pauses<J> {
    jitter: J,
    next: Next,
}

enum Next {
    First,
    Later,
}

impl<J: FnMut() -> f64> Pauses<J> {
    const fn new(jitter: J) -> Self {
        let next = Next::First;
        Self { jitter, next }
    }

    fn next(&mut self) -> Duration {
        let jitter = (self.jitter)();
        match std::mem::replace(&mut self.next, Next::Later) {
            Next::First => FIRST.mul_f64(1.0 + jitter),
            Next::Later => EVERY.mul_f64(0.75 + 0.5 * jitter),
        }
    }
}

/// Prunes soon after the start and then every ten minutes until stopped.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut trouble = Trouble::new("pruning old runs");
    let mut pauses = Pauses::new(crate::clock::jitter);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pauses.next()) => {}
        }
        let keep = Keep::of(engine.settings());
        // A pass over a backlog is long; it is cut between two batches.
        let Some(done) = stop.run_until_cancelled(pass(&engine, keep)).await else {
            return;
        };
        match done {
            Ok(pruned) => {
                trouble.over();
                if pruned.runs + pruned.events > 0 {
                    let (runs, events) = (pruned.runs, pruned.events);
                    tracing::info!(runs, events, "old runs were pruned");
                }
            }
            Err(error) => trouble.met(&error),
        }
    }
}

/// One pass over all tenants; nothing while another instance does it.
pub async fn pass(engine: &Engine, keep: Keep) -> Result<Pruned, Error> {
    let mut walk = Walk {
        engine,
        fleet: engine.store().fleet(),
        pruned: Pruned::default(),
    };
    if let Some(keep_ms) = keep.events_ms {
        walk.events(keep_ms, keep.events_per_batch).await?;
    }
    if let Some(keep_ms) = keep.runs_ms {
        walk.runs(keep_ms, keep.runs_per_batch).await?;
    }
    if let Some(duty) = walk.duty().await? {
        walk.fleet.prune_passes(PASSES_PER_BATCH).await?;
        walk.fleet.prune_grant_keys().await?;
        walk.fleet.leave_duty(duty).await?;
    }
    Ok(walk.pruned)
}

struct Walk<'a> {
    engine: &'a Engine,
    fleet: Fleet,
    pruned: Pruned,
}

impl Walk<'_> {
    async fn duty(&self) -> Result<Option<Duty>, Error> {
        let duty = self.fleet.hold_duty(DUTY, self.engine.instance(), LEASE_MS);
        Ok(duty.await?)
    }

    async fn events(&mut self, keep_ms: i64, limit: i64) -> Result<(), Error> {
        let mut from = Some(Position::default());
        while let Some(position) = from.take()
            && self.duty().await?.is_some()
        {
            let batch = self.fleet.prune_events(keep_ms, &position, limit).await?;
            self.pruned.events += batch.gone;
            from = self.note("events", batch).await;
        }
        Ok(())
    }

    async fn runs(&mut self, keep_ms: i64, limit: i64) -> Result<(), Error> {
        let mut from = Some(Position::default());
        while let Some(position) = from.take()
            && self.duty().await?.is_some()
        {
            let batch = self.fleet.prune_runs(keep_ms, &position, limit).await?;
            self.pruned.runs += batch.gone;
            from = self.note("runs", batch).await;
        }
        Ok(())
    }

    async fn note(&mut self, what: &'static str, batch: Batch) -> Option<Position> {
        metrics::counter!("tidegate_pruned_total", "what" => what).increment(batch.gone);
        self.pruned.largest_batch = self.pruned.largest_batch.max(batch.gone);
        if batch.next.is_some() {
            tokio::time::sleep(PAUSE).await;
        }
        batch.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R24.3: a server that is started anew every few minutes prunes too, and those that start together do so apart.
    #[test]
    fn the_first_pass_follows_soon_after_the_start() {
        for (jitter, seconds) in [(0.0, [30, 450, 450]), (1.0, [60, 750, 750])] {
            let mut pauses = Pauses::new(|| jitter);
            let waited = seconds.map(|_| pauses.next());
            assert_eq!(waited, seconds.map(Duration::from_secs));
        }
    }

    /// R24.3: 0 keeps for ever, and events go no later than their run.
    #[test]
    fn events_are_kept_no_longer_than_their_run() {
        for (runs, events, expected) in [
            (90, 30, (Some(90), Some(30))),
            (7, 30, (Some(7), Some(7))),
            (90, 0, (Some(90), Some(90))),
            (0, 30, (None, Some(30))),
            (0, 0, (None, None)),
        ] {
            let keep = Keep::of(&Settings {
                run_retention_days: runs,
                run_event_retention_days: events,
                ..Settings::default()
            });
            let days = |ms: Option<i64>| ms.map(|ms| ms / DAY_MS);
            assert_eq!((days(keep.runs_ms), days(keep.events_ms)), expected);
        }
    }
}
