//! Queueing time by cause: a run's intervals in the queue, cut with what blocked its lane (R3.9).

use std::collections::BTreeMap;

use tidegate_model::queue_reason::QueueReason;

/// An observer looks at each lane more often than this; where a longer time has no cause, nobody looked, or what was
/// written down is gone.
const UNSEEN_MAX_MS: i64 = 5_000;
/// Causes that one look has found begin this close together.
const SAME_LOOK_MS: i64 = 20;

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
/// At every moment the cause with the lowest rank counts, so that the parts add up to the whole. What was found at the first
/// look at a run's lane held since the run came, also where that was a moment before; where else no cause was recorded
/// the run was waiting for a worker. Causes that took no time are left out. `O((n + m) log m)` per interval.
pub fn by_cause(queued: &[Interval], held: &[Held]) -> BTreeMap<QueueReason, i64> {
    let mut waits = BTreeMap::new();
    for interval in queued {
        cut(*interval, held, &mut waits);
    }
    waits
}

fn cut(whole: Interval, held: &[Held], waits: &mut BTreeMap<QueueReason, i64>) {
    let within: Vec<Held> = held
        .iter()
        .filter_map(|cause| {
            let from_ms = cause.interval.from_ms.max(whole.from_ms);
            let to_ms = cause.interval.to_ms.min(whole.to_ms);
            let interval = Interval { from_ms, to_ms };
            (from_ms < to_ms).then_some(Held { interval, ..*cause })
        })
        .collect();
    let seen_until = first_look(whole, &within);
    let mut edges = Vec::with_capacity(within.len() * 2 + 1);
    for cause in within {
        let Interval { from_ms, to_ms } = cause.interval;
        let from_ms = if from_ms <= seen_until {
            whole.from_ms
        } else {
            from_ms
        };
        edges.push((from_ms, cause.code, 1_i32));
        edges.push((to_ms, cause.code, -1_i32));
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

/// Until when a cause must have begun to have been found at the first look at the lane.
fn first_look(whole: Interval, within: &[Held]) -> i64 {
    match within.iter().map(|cause| cause.interval.from_ms).min() {
        Some(first)
            if first > whole.from_ms && first.saturating_sub(whole.from_ms) <= UNSEEN_MAX_MS =>
        {
            first.saturating_add(SAME_LOOK_MS)
        }
        _ => whole.from_ms,
    }
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
    use QueueReason as Q;

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
            (QueueReason::TenantForegroundCap, 40),
            (QueueReason::WaitingForWorker, 50),
        ]);
        assert_eq!(waits, expected);
        assert!(by_cause(&[], &causes).is_empty());
    }

    /// R3.9: the time before the first look at a lane counts for what was found then, not for a worker.
    #[test]
    fn what_the_first_look_found_held_from_the_beginning() {
        let waits = |from_ms, causes: &[Held]| {
            let to_ms = from_ms + 100_000;
            let queued = [Interval { from_ms, to_ms }];
            by_cause(&queued, causes)
        };
        let (cap, pool) = (Q::TenantForegroundCap, Q::NoEligiblePool);
        let alone = [held(pool, 1_200, 500_000)];
        assert_eq!(waits(1_000, &alone), BTreeMap::from([(pool, 100_000)]));
        // One look found two; the second of them is shown.
        let both = [held(cap, 1_200, 500_000), held(pool, 1_201, 500_000)];
        assert_eq!(waits(1_000, &both), BTreeMap::from([(pool, 100_000)]));
        // A cause that came later counts from then, and one that held before the run came needs no filling.
        let later = [held(cap, 1_200, 500_000), held(pool, 51_000, 500_000)];
        assert_eq!(
            waits(1_000, &later),
            BTreeMap::from([(pool, 50_000), (cap, 50_000)])
        );
        let before = [held(cap, 0, 1_100), held(pool, 51_000, 500_000)];
        assert_eq!(
            waits(1_000, &before),
            BTreeMap::from([(pool, 50_000), (cap, 100), (Q::WaitingForWorker, 49_900)])
        );
        // What was written down of most of the time is forgotten.
        let late = [held(cap, 71_000, 500_000)];
        assert_eq!(
            waits(1_000, &late),
            BTreeMap::from([(cap, 30_000), (Q::WaitingForWorker, 70_000)])
        );
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
            for whole in &queued {
                let within = |c: &Held| Some((c.code, c.interval.from_ms.max(whole.from_ms), c.interval.to_ms.min(whole.to_ms)))
                    .filter(|(_, from, to)| from < to);
                let mut within: Vec<_> = causes.iter().filter_map(within).collect();
                let first = within.iter().map(|(_, from, _)| *from).min().unwrap_or(0);
                for (_, from, _) in within.iter_mut().filter(|(_, from, _)| first > whole.from_ms && *from <= first + SAME_LOOK_MS) {
                    *from = whole.from_ms;
                }
                for at in whole.from_ms..whole.to_ms {
                    let shown = within.iter().filter(|(_, from, to)| *from <= at && at < *to)
                        .map(|(code, ..)| *code).min_by_key(|code| code.rank()).unwrap_or(QueueReason::WaitingForWorker);
                    *plain.entry(shown).or_default() += 1;
                }
            }
            prop_assert_eq!(waits, plain);
        }
    }
}
