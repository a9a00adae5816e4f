//! Queueing time by cause: a run's intervals in the queue, cut with what blocked its lane (R3.9).

use std::collections::BTreeMap;

use tidegate_model::queue_reason::QueueReason;

/// An interval of time in milliseconds since 1970, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// From here.
    pub from_ms: i64,
    /// To here.
    pub to_ms: i64,
}

/// A cause that held for an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The cause.
    pub code: QueueReason,
    /// When it held.
    pub interval: Interval,
}

/// How long the shown cause was which one, over all `queued` intervals, in milliseconds.
///
/// At every moment the cause with the lowest rank counts, so that the parts add up to the whole; where none was
/// recorded the run was waiting for a worker. Causes that took no time are left out. `O((n + m) log m)` per interval.
pub fn by_cause(queued: &[Interval], held: &[Held]) -> BTreeMap<QueueReason, i64> {
    let mut waits = BTreeMap::new();
    for interval in queued {
        cut(*interval, held, &mut waits);
    }
    waits
}

fn cut(whole: Interval, held: &[Held], waits: &mut BTreeMap<QueueReason, i64>) {
    let mut edges = Vec::with_capacity(held.len() * 2 + 1);
    for cause in held {
        let from = cause.interval.from_ms.max(whole.from_ms);
        let to = cause.interval.to_ms.min(whole.to_ms);
        if from < to {
            edges.push((from, cause.code, 1_i32));
            edges.push((to, cause.code, -1_i32));
        }
    }
    edges.sort_unstable_by_key(|(at, ..)| *at);
    let mut active: BTreeMap<u8, (QueueReason, i32)> = BTreeMap::new();
    let mut since = whole.from_ms;
    for (at, code, step) in edges {
        count(&active, since, at, waits);
        since = since.max(at);
        let depth = active.entry(code.rank()).or_insert((code, 0));
        depth.1 += step;
        if depth.1 == 0 {
            active.remove(&code.rank());
        }
    }
    count(&active, since, whole.to_ms, waits);
}

fn count(
    active: &BTreeMap<u8, (QueueReason, i32)>,
    from_ms: i64,
    to_ms: i64,
    waits: &mut BTreeMap<QueueReason, i64>,
) {
    if from_ms < to_ms {
        let shown = active
            .first_key_value()
            .map_or(QueueReason::WaitingForWorker, |(_, (code, _))| *code);
        let wait = waits.entry(shown).or_default();
        *wait = wait.saturating_add(to_ms.saturating_sub(from_ms));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(code: QueueReason, from_ms: i64, to_ms: i64) -> Held {
        Held {
            code,
            interval: Interval { from_ms, to_ms },
        }
    }

    #[test]
    fn overlaps_count_for_the_shown_cause_and_gaps_for_the_worker() {
        let queued = [
            Interval {
                from_ms: 100,
                to_ms: 200,
            },
            Interval {
                from_ms: 300,
                to_ms: 310,
            },
        ];
        let causes = [
            held(QueueReason::TenantForegroundCap, 0, 150),
            held(QueueReason::NoEligiblePool, 120, 140),
            held(QueueReason::TenantForegroundCap, 305, 1_000),
        ];
        let waits = by_cause(&queued, &causes);
        let expected = BTreeMap::from([
            (QueueReason::NoEligiblePool, 20),
            (QueueReason::TenantForegroundCap, 35),
            (QueueReason::WaitingForWorker, 55),
        ]);
        assert_eq!(waits, expected);
        assert!(by_cause(&[], &causes).is_empty());
    }

    proptest! {
        /// R3.9: nothing of a run's queueing time is lost or counted twice.
        #[test]
        fn the_parts_add_up_to_the_whole(
            queued in prop::collection::vec((0_i64..100, 0_i64..50), 0..4),
            causes in prop::collection::vec((0_usize..12, 0_i64..150, 0_i64..60), 0..12),
        ) {
            let queued: Vec<_> = queued.iter().map(|(from, len)| Interval { from_ms: *from, to_ms: from + len }).collect();
            let causes: Vec<_> = causes.iter()
                .map(|(code, from, len)| held(QueueReason::ALL[*code], *from, from + len)).collect();
            let waits = by_cause(&queued, &causes);
            let whole: i64 = queued.iter().map(|i| i.to_ms - i.from_ms).sum();
            prop_assert_eq!(waits.values().sum::<i64>(), whole);
            // Millisecond by millisecond, the plain way.
            let mut plain: BTreeMap<QueueReason, i64> = BTreeMap::new();
            for at in queued.iter().flat_map(|i| i.from_ms..i.to_ms) {
                let shown = causes.iter().filter(|c| c.interval.from_ms <= at && at < c.interval.to_ms)
                    .map(|c| c.code).min_by_key(|code| code.rank()).unwrap_or(QueueReason::WaitingForWorker);
                *plain.entry(shown).or_default() += 1;
            }
            prop_assert_eq!(waits, plain);
        }
    }
}
