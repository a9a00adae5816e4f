//! When a schedule is due, and what is done about it (R3.14).
//!
//! Which moments an expression names is `recurrence`; what becomes of them is decided here.

mod recurrence;

use chrono::{DateTime, TimeDelta, Utc};
use tidegate_model::schedule::{MissedRuns, Overlap, SkipReason};

pub use recurrence::{Recurrence, RecurrenceError};

/// A due time that is noticed within this is on time, and no matter for the rule for missed runs.
pub const ON_TIME_MS: i64 = 60_000;
/// The most runs of one schedule in one round; the rest follows with the next.
pub const RUNS_PER_ROUND: usize = 20;

/// What a schedule does about its due times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// About those that were missed.
    pub missed_runs: MissedRuns,
    /// How old a missed one may be, in milliseconds.
    pub catch_up_window_ms: i64,
    /// About those that come while an earlier run is open.
    pub overlap: Overlap,
}

/// What is done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    /// The due times that a run comes of, in order.
    pub runs: Vec<DateTime<Utc>>,
    /// Whether the open runs of the schedule are cancelled.
    pub replaces: bool,
    /// The latest due time that no run comes of, and why.
    pub skipped: Option<(DateTime<Utc>, SkipReason)>,
    /// The next due time; in the past where more is to be made up for than one round does.
    pub next: DateTime<Utc>,
}

/// Decides what a schedule does at `now`, whose earliest due time that is not settled is `next_due`, and of whose runs
/// some are open or none is.
pub fn fire(
    recurrence: &Recurrence,
    rules: Rules,
    next_due: DateTime<Utc>,
    now: DateTime<Utc>,
    runs_open: bool,
) -> Result<Firing, RecurrenceError> {
    let window = TimeDelta::milliseconds(rules.catch_up_window_ms.max(ON_TIME_MS));
    let oldest = now.checked_sub_signed(window).unwrap_or(next_due);
    let due = recurrence.between(next_due.max(oldest), now)?;
    let mut firing = Firing {
        runs: Vec::new(),
        replaces: false,
        skipped: None,
        next: recurrence.after(now)?,
    };
    let (runs, left_out) = made_up_for(rules.missed_runs, &due, now);
    firing.runs = runs;
    firing.skipped = left_out.map(|due| (due, SkipReason::Missed));
    if firing.skipped.is_none() && next_due < oldest && due.is_empty() {
        firing.skipped = Some((next_due, SkipReason::Missed));
    }
    overlap(rules.overlap, runs_open, &mut firing);
    if firing.runs.len() > RUNS_PER_ROUND {
        firing.next = firing.runs[RUNS_PER_ROUND];
        firing.runs.truncate(RUNS_PER_ROUND);
    }
    Ok(firing)
}

/// Which of the due times get a run, and the latest one that gets none.
fn made_up_for(
    rule: MissedRuns,
    due: &[DateTime<Utc>],
    now: DateTime<Utc>,
) -> (Vec<DateTime<Utc>>, Option<DateTime<Utc>>) {
    let on_time = TimeDelta::milliseconds(ON_TIME_MS);
    let first = match rule {
        MissedRuns::Skip => due.partition_point(|due| now - *due > on_time),
        MissedRuns::RunOnce => due.len().saturating_sub(1),
        MissedRuns::RunAll => 0,
    };
    let (left_out, runs) = due.split_at(first);
    (runs.to_vec(), left_out.last().copied())
}

fn overlap(rule: Overlap, runs_open: bool, firing: &mut Firing) {
    if firing.runs.is_empty() {
        return;
    }
    let dropped = match rule {
        Overlap::Allow => Vec::new(),
        Overlap::Skip => firing.runs.split_off(usize::from(!runs_open)),
        Overlap::Replace => {
            firing.replaces = runs_open;
            let latest = firing.runs.split_off(firing.runs.len() - 1);
            std::mem::replace(&mut firing.runs, latest)
        }
    };
    if let Some(latest) = dropped.last() {
        firing.skipped = Some((*latest, SkipReason::Overlap));
    }
}

#[cfg(test)]
mod tests;
