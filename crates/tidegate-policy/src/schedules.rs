//! When a schedule is due, and what is done about it (R3.14).
//!
//! Cron expressions are read in a time zone of the IANA database, both by the parts of this crate's dependencies that do
//! nothing else; the rules below are the whole of what is decided here. Where clocks are set forward or back, a fixed
//! time of day (`30 2 * * *`) fires once: at the first moment after a local time that does not exist, at the first of two
//! that are called the same. What repeats within the day (`*/15 * * * *`) goes on in real time: nothing for a local hour
//! that does not exist, twice through one that comes twice.

use std::collections::VecDeque;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use croner::{
    Cron,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};
use tidegate_model::{
    limits,
    schedule::{MissedRuns, Overlap, SkipReason},
};

/// A due time that is noticed within this is on time, and no matter for the rule for missed runs.
pub const ON_TIME_MS: i64 = 60_000;
/// The most runs of one schedule in one round; the rest follows with the next.
pub const RUNS_PER_ROUND: usize = 20;
/// A time zone is proposed for one that is not known up to this distance.
const NEAREST_MAX: f64 = 0.7;

/// Why a cron expression or a time zone cannot be used; the text says what to write in its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecurrenceError {
    /// The expression cannot be read.
    #[error(
        "{reason}; give five fields (minute, hour, day of month, month, day of week), for example `0 6 * * MON-FRI` for \
         06:00 on working days, or @hourly, @daily, @weekly, @monthly, @yearly"
    )]
    Cron {
        /// What is wrong with it.
        reason: String,
    },
    /// It names a day that never comes.
    #[error("this expression is never due: no such day exists; check day of month against month")]
    Never,
    /// The zone is not in the database.
    #[error("{zone:?} is no IANA time zone{}", nearest(zone))]
    Zone {
        /// What was given.
        zone: String,
    },
}

fn nearest(zone: &str) -> String {
    let near = |known: &Tz| strsim::jaro_winkler(known.name(), zone);
    TZ_VARIANTS
        .iter()
        .max_by(|one, other| near(one).total_cmp(&near(other)))
        .filter(|known| near(known) >= NEAREST_MAX)
        .map_or_else(
            || "; give a name such as UTC or Europe/Berlin".to_owned(),
            |known| format!("; did you mean {}?", known.name()),
        )
}

/// A cron expression in its time zone.
#[derive(Debug, Clone)]
pub struct Recurrence {
    cron: Cron,
    zone: Tz,
}

impl Recurrence {
    /// Reads a cron expression of five fields, or a nickname, and the name of its time zone.
    pub fn parse(cron: &str, zone: &str) -> Result<Self, RecurrenceError> {
        let zone = zone.parse().map_err(|_| RecurrenceError::Zone {
            zone: zone.chars().take(64).collect(),
        })?;
        if cron.chars().count() > limits::CRON_MAX_CHARS {
            let reason = format!("it is longer than {} characters", limits::CRON_MAX_CHARS);
            return Err(RecurrenceError::Cron { reason });
        }
        let cron = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build()
            .parse(cron)
            .map_err(|error| RecurrenceError::Cron {
                reason: plain(&error),
            })?;
        Ok(Self { cron, zone })
    }

    /// The first due time after a moment.
    pub fn after(&self, moment: DateTime<Utc>) -> Result<DateTime<Utc>, RecurrenceError> {
        self.next(moment, false)
    }

    /// The next due times after a moment, at most so many.
    pub fn upcoming(&self, moment: DateTime<Utc>, most: usize) -> Vec<DateTime<Utc>> {
        let next = |from: &DateTime<Utc>| self.after(*from).ok();
        std::iter::successors(next(&moment), next)
            .take(most)
            .collect()
    }

    fn next(
        &self,
        moment: DateTime<Utc>,
        inclusive: bool,
    ) -> Result<DateTime<Utc>, RecurrenceError> {
        self.cron
            .find_next_occurrence(&moment.with_timezone(&self.zone), inclusive)
            .map(|due| due.with_timezone(&Utc))
            .map_err(|_| RecurrenceError::Never)
    }

    /// The latest due times from one moment to another, both included, in order; at most [`limits::MISSED_RUNS_MAX`].
    fn between(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Vec<DateTime<Utc>>, RecurrenceError> {
        let mut latest = VecDeque::new();
        let mut due = self.next(self.start_of(from, to), true)?;
        while due <= to {
            if latest.len() == limits::MISSED_RUNS_MAX {
                latest.pop_front();
            }
            latest.push_back(due);
            due = self.after(due)?;
        }
        Ok(latest.into())
    }

    /// A moment from which on at least all that count are due: walking a year of minutes to keep the last hundred would
    /// take seconds.
    fn start_of(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> DateTime<Utc> {
        let mut start = to.with_timezone(&self.zone);
        for _ in 0..=limits::MISSED_RUNS_MAX {
            match self.cron.find_previous_occurrence(&start, false) {
                Ok(previous) if previous > from => start = previous,
                _ => return from,
            }
        }
        start.with_timezone(&Utc)
    }
}

/// What the parser says, in the words of this API.
fn plain(error: &CronError) -> String {
    match error {
        CronError::EmptyPattern => "it is empty".to_owned(),
        CronError::InvalidPattern(reason)
        | CronError::IllegalCharacters(reason)
        | CronError::ComponentError(reason) => {
            reason.trim_end_matches('.').chars().take(200).collect()
        }
        CronError::InvalidDate | CronError::InvalidTime | CronError::TimeSearchLimitExceeded => {
            "it names no time that exists".to_owned()
        }
    }
}

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
