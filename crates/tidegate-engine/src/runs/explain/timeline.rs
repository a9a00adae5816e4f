//! Where a run spent its time outside of leases: in the queue, and parked.
//!
//! A parked interval leaves no row behind when it is over; it is what lies between two things that are written down.

use chrono::{DateTime, Utc};
use tidegate_model::{queue_reason::QueueReason, run::ParkReason};
use tidegate_policy::reasons::waits::Interval;
use tidegate_store::read::{
    explain::{AttemptRow, Requeue},
    runs::{RunPlace, RunRow},
};

/// Two times of one statement may lie this far apart.
const SAME_STATEMENT_MS: i64 = 5;

/// Intervals of a run, none overlapping another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Timeline {
    /// In the queue, to be cut by what blocked the lane.
    pub queued: Vec<Interval>,
    /// Parked, each for its own cause.
    pub parked: Vec<(QueueReason, Interval)>,
}

pub(super) fn of(row: &RunRow, attempts: &[AttemptRow], requeues: &[Requeue]) -> Timeline {
    let mut timeline = Timeline::default();
    let mut since = row.created_at;
    let mut first = true;
    for attempt in attempts {
        timeline.gap(row, first, since, attempt.queued_at, requeues);
        timeline.queue(attempt.queued_at, attempt.started_at);
        since = attempt.ended_at;
        first = false;
    }
    match &row.place {
        RunPlace::Queued(queued) => {
            timeline.gap(row, first, since, queued.queued_at, requeues);
            timeline.queue(queued.queued_at, row.read_at);
        }
        RunPlace::Running(running) => {
            timeline.gap(row, first, since, running.queued_at, requeues);
            timeline.queue(running.queued_at, running.started_at);
        }
        RunPlace::Parked(parked) => {
            timeline.gap(row, first, since, parked.parked_at, requeues);
            if let Some(code) = code(parked.why) {
                timeline.park(code, parked.parked_at, row.read_at);
            }
        }
        // Ended without a lease: what it waited for in the end stands in the lane's history, if anywhere.
        RunPlace::Ended(ended) if since < ended.ended_at => {
            let start = resumed_at(since, ended.ended_at, requeues).unwrap_or(since);
            let due = row
                .run_at
                .filter(|_| first)
                .map_or(start, |due| due.clamp(start, ended.ended_at));
            timeline.park(QueueReason::Scheduled, start, due);
            timeline.queue(due, ended.ended_at);
        }
        RunPlace::Ended(_) => {}
    }
    timeline
}

impl Timeline {
    fn queue(&mut self, from: DateTime<Utc>, to: DateTime<Utc>) {
        if let Some(interval) = interval(from, to) {
            self.queued.push(interval);
        }
    }

    fn park(&mut self, code: QueueReason, from: DateTime<Utc>, to: DateTime<Utc>) {
        if let Some(interval) = interval(from, to) {
            self.parked.push((code, interval));
        }
    }

    /// Between acceptance or an attempt and the next entry into the queue.
    fn gap(
        &mut self,
        row: &RunRow,
        first: bool,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        requeues: &[Requeue],
    ) {
        if (to - from).num_milliseconds() <= SAME_STATEMENT_MS {
            return;
        }
        if !first {
            match resumed_at(from, to, requeues) {
                // As a dead letter it waited for nobody.
                Some(resumed) => self.park(QueueReason::ConversationBusy, resumed, to),
                None => self.park(QueueReason::RetryBackoff, from, to),
            }
            return;
        }
        let due = row.run_at.map_or(from, |due| due.clamp(from, to));
        self.park(QueueReason::Scheduled, from, due);
        let rest = if row.conversation_id.is_some() {
            QueueReason::ConversationBusy
        } else {
            QueueReason::Scheduled
        };
        self.park(rest, due, to);
    }
}

/// When a dead letter was put back within an interval.
fn resumed_at(
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    requeues: &[Requeue],
) -> Option<DateTime<Utc>> {
    requeues
        .iter()
        .filter(|requeue| requeue.was_ended && from <= requeue.at && requeue.at <= to)
        .map(|requeue| requeue.at)
        .next_back()
}

fn interval(from: DateTime<Utc>, to: DateTime<Utc>) -> Option<Interval> {
    let interval = Interval {
        from_ms: from.timestamp_millis(),
        to_ms: to.timestamp_millis(),
    };
    (interval.from_ms < interval.to_ms).then_some(interval)
}

const fn code(why: ParkReason) -> Option<QueueReason> {
    match why {
        ParkReason::ConversationBusy => Some(QueueReason::ConversationBusy),
        ParkReason::Scheduled => Some(QueueReason::Scheduled),
        ParkReason::RetryBackoff => Some(QueueReason::RetryBackoff),
        ParkReason::Waiting | ParkReason::Review => None,
    }
}
