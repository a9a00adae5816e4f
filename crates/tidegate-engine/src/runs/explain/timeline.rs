//! Where a run spent its time outside of leases: in the queue, and parked.
//!
//! A parked interval leaves no row behind when it is over; it is what lies between two things that are written down.

use chrono::{DateTime, Utc};
use tidegate_model::{
    queue_reason::QueueReason,
    run::{AttemptOutcome, ParkReason},
};
use tidegate_policy::reasons::waits::Interval;
use tidegate_store::read::{
    explain::{AttemptRow, Pauses, Requeue},
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

pub(super) fn of(
    row: &RunRow,
    attempts: &[AttemptRow],
    requeues: &[Requeue],
    pauses: &Pauses,
) -> Timeline {
    let mut timeline = Timeline::default();
    let mut since = row.created_at;
    let mut first = true;
    // What an attempt that waited began, or one that left a question to a person: the wait itself is no queueing, what
    // follows its end is.
    let waited = |attempt: &AttemptRow| {
        let until = pauses.ends.iter().find(|at| **at >= attempt.ended_at);
        let in_review = |at: &DateTime<Utc>| {
            same_statement(*at, attempt.ended_at) && same_statement(attempt.ended_at, *at)
        };
        (attempt.outcome == AttemptOutcome::Waiting || pauses.reviews.iter().any(in_review))
            .then_some(until.copied())
    };
    let mut wait = None;
    for attempt in attempts {
        timeline.gap(
            row,
            first,
            wait.flatten().unwrap_or(since),
            attempt.queued_at,
            requeues,
        );
        timeline.queue(attempt.queued_at, attempt.started_at);
        since = attempt.ended_at;
        wait = waited(attempt);
        first = false;
    }
    if let Some(woken) = wait {
        match (woken, &row.place) {
            (Some(woken), _) => since = woken,
            (None, RunPlace::Ended(_)) => return timeline,
            (None, _) => {}
        }
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
        RunPlace::Ended(ended) if !same_statement(since, ended.ended_at) => {
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
        if same_statement(from, to) {
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

/// Also where the second is not after the first.
fn same_statement(first: DateTime<Utc>, second: DateTime<Utc>) -> bool {
    (second - first).num_milliseconds() <= SAME_STATEMENT_MS
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

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use tidegate_model::{
        Capability, ConversationId, Fence, PoolId, RunId,
        run::{QuotaBucket, RunKind, RunState, ServiceClass},
    };
    use tidegate_store::{
        lanes::LaneKey,
        read::runs::{Ended, Parked, Queued},
    };

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn run(place: RunPlace, read_at: i64) -> RunRow {
        RunRow {
            run_id: RunId::new(),
            scope: "main".to_owned(),
            lane: LaneKey {
                bucket: QuotaBucket::Uncounted,
                tenant: "acme".parse().unwrap(),
                class: 1,
            },
            kind: RunKind::BusinessTask,
            capability: Capability::chat(),
            service_class: ServiceClass::Standard,
            priority: 0,
            priority_source: tidegate_model::run::PrioritySource::Default,
            user: None,
            conversation_id: None,
            parent_run_id: None,
            root_run_id: RunId::new(),
            schedule: None,
            max_attempts: 5,
            budget_tokens: None,
            budget_ms: None,
            run_at: None,
            deadline: None,
            created_at: at(0),
            attempts: 0,
            spent_tokens: 0,
            spent_ms: 0,
            place,
            read_at: at(read_at),
        }
    }

    fn attempt(queued: i64, started: i64, ended: i64) -> AttemptRow {
        AttemptRow {
            attempt: 1,
            fence: Fence {
                generation: 1,
                number: 1,
            },
            holder: "w".to_owned(),
            incarnation: 1,
            pool: PoolId::builtin(),
            queued_at: at(queued),
            started_at: at(started),
            ended_at: at(ended),
            outcome: AttemptOutcome::Failed,
            code: None,
            tokens: 0,
        }
    }

    fn queued(since: i64) -> RunPlace {
        RunPlace::Queued(Queued {
            queued_at: at(since),
            rank: 1,
            urgency: 0,
            position: 1,
        })
    }

    fn ended(since: i64) -> RunPlace {
        RunPlace::Ended(Ended {
            state: RunState::Cancelled,
            code: None,
            detail: None,
            result: None,
            ended_at: at(since),
        })
    }

    fn seconds(from: i64, to: i64) -> Interval {
        Interval {
            from_ms: from * 1_000,
            to_ms: to * 1_000,
        }
    }

    /// R3.9: a turn that waited for its time, then for its conversation, then in the queue.
    #[test]
    fn a_turn_is_cut_into_schedule_conversation_and_queue() {
        let mut turn = run(queued(30), 50);
        turn.run_at = Some(at(10));
        turn.conversation_id = Some(ConversationId::new());
        let timeline = of(&turn, &[], &[], &Pauses::default());
        assert_eq!(timeline.queued, [seconds(30, 50)]);
        assert_eq!(
            timeline.parked,
            [
                (QueueReason::Scheduled, seconds(0, 10)),
                (QueueReason::ConversationBusy, seconds(10, 30))
            ]
        );
    }

    /// R3.9, R3.11: backing off counts; being a dead letter does not.
    #[test]
    fn backoff_counts_and_death_does_not() {
        let attempts = [attempt(0, 5, 10), attempt(20, 25, 30)];
        let back = Requeue {
            at: at(60),
            was_ended: true,
        };
        let timeline = of(&run(queued(60), 70), &attempts, &[back], &Pauses::default());
        let expected = [seconds(0, 5), seconds(20, 25), seconds(60, 70)];
        assert_eq!(timeline.queued, expected);
        assert_eq!(
            timeline.parked,
            [(QueueReason::RetryBackoff, seconds(10, 20))]
        );
        // Started before its time: what went before was backing off all the same.
        let early = Requeue {
            at: at(15),
            was_ended: false,
        };
        let timeline = of(
            &run(queued(15), 15),
            &attempts[..1],
            &[early],
            &Pauses::default(),
        );
        assert_eq!(
            timeline.parked,
            [(QueueReason::RetryBackoff, seconds(10, 15))]
        );
    }

    #[test]
    fn what_ended_without_a_lease_waited_until_then() {
        let timeline = of(&run(ended(40), 90), &[], &[], &Pauses::default());
        assert_eq!(timeline.queued, [seconds(0, 40)]);
        let timeline = of(
            &run(ended(10), 90),
            &[attempt(0, 5, 10)],
            &[],
            &Pauses::default(),
        );
        assert_eq!(timeline.queued, [seconds(0, 5)]);
        assert_eq!(timeline.parked, []);
        let parked = RunPlace::Parked(Parked {
            why: ParkReason::Waiting,
            due: None,
            parked_at: at(10),
            active_run: None,
            active_parked: None,
            wait: None,
            last_code: None,
        });
        // Waiting is no queueing.
        let timeline = of(
            &run(parked, 90),
            &[attempt(0, 5, 10)],
            &[],
            &Pauses::default(),
        );
        assert_eq!((timeline.queued.len(), timeline.parked.len()), (1, 0));
    }

    /// R3.13: a wait is no queueing; what comes after its end is.
    #[test]
    fn a_wait_is_left_out() {
        let waiting = AttemptRow {
            outcome: AttemptOutcome::Waiting,
            ..attempt(0, 5, 10)
        };
        let woken = Pauses {
            ends: vec![at(40)],
            ..Pauses::default()
        };
        let timeline = of(
            &run(queued(40), 45),
            std::slice::from_ref(&waiting),
            &[],
            &woken,
        );
        assert_eq!(timeline.queued, [seconds(0, 5), seconds(40, 45)]);
        assert_eq!(timeline.parked, []);
        let later = [waiting.clone(), attempt(40, 41, 50)];
        let timeline = of(&run(ended(50), 90), &later, &[], &woken);
        assert_eq!((timeline.queued.len(), timeline.parked.len()), (2, 0));
        // Cancelled while it waited.
        let timeline = of(&run(ended(30), 90), &[waiting], &[], &Pauses::default());
        assert_eq!((timeline.queued.len(), timeline.parked.len()), (1, 0));
    }

    /// R3.9: a review waits for a person: neither queueing nor backing off, whatever comes after it.
    #[test]
    fn a_review_is_left_out() {
        let resolved = Pauses {
            reviews: vec![at(10)],
            ends: vec![at(40)],
        };
        let attempts = [attempt(0, 5, 10), attempt(40, 43, 50), attempt(60, 61, 70)];
        let timeline = of(&run(queued(40), 45), &attempts[..1], &[], &resolved);
        assert_eq!(timeline.queued, [seconds(0, 5), seconds(40, 45)]);
        assert_eq!(timeline.parked, []);
        // A backoff after the second attempt is still one.
        let timeline = of(&run(ended(70), 90), &attempts, &[], &resolved);
        assert_eq!(timeline.queued.len(), 3);
        assert_eq!(
            timeline.parked,
            [(QueueReason::RetryBackoff, seconds(50, 60))]
        );
        // Failed by the same person's word, or cancelled while it stood in review.
        let failed = Pauses {
            ends: vec![at(30)],
            ..resolved.clone()
        };
        let cancelled = Pauses {
            ends: Vec::new(),
            ..resolved
        };
        for pauses in [failed, cancelled] {
            let timeline = of(&run(ended(30), 90), &attempts[..1], &[], &pauses);
            assert_eq!(timeline.queued, [seconds(0, 5)]);
            assert_eq!(timeline.parked, []);
        }
    }
}
