//! Requirement classes whose vector did not fit when a claim asked for it: they are left alone until something has come
//! free here, or for a moment, so that what fits behind them is served (R7.7).

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tidegate_model::PoolId;

/// How long a class is left alone where nobody here hears of what comes free: the age that a view of lanes may have.
const LEFT_ALONE: Duration = Duration::from_millis(500);

/// By pool and class.
#[derive(Debug, Default)]
pub(crate) struct ShortClasses(HashMap<PoolId, HashMap<i32, Short>>);

#[derive(Debug, Clone, Copy)]
struct Short {
    /// Since when each claim found it short.
    since: Instant,
    /// When it is looked at again.
    until: Instant,
}

impl Short {
    /// One that nobody has asked for in a while begins anew.
    fn is_stale(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.until) > LEFT_ALONE * 10
    }
}

impl ShortClasses {
    /// The classes that a claim of a pool leaves alone now, and when the first of them is to be looked at again.
    pub(crate) fn of(&self, pool: &PoolId, now: Instant) -> (Vec<i32>, Option<Instant>) {
        let Some(classes) = self.0.get(pool) else {
            return (Vec::new(), None);
        };
        let left = || classes.iter().filter(|(_, short)| short.until > now);
        let first = left().map(|(_, short)| short.until).min();
        (left().map(|(class, _)| *class).collect(), first)
    }

    /// For how long each claim has found a class short.
    pub(crate) fn waited(&self, pool: &PoolId, class: i32, now: Instant) -> Duration {
        let short = self.0.get(pool).and_then(|classes| classes.get(&class));
        short
            .filter(|short| !short.is_stale(now))
            .map_or(Duration::ZERO, |short| {
                now.saturating_duration_since(short.since)
            })
    }

    /// Notes that a class is short; since when that has been so.
    pub(crate) fn met(&mut self, pool: &PoolId, class: i32, now: Instant) -> Duration {
        let classes = self.0.entry(pool.clone()).or_default();
        let short = classes.entry(class).or_insert(Short {
            since: now,
            until: now,
        });
        if short.is_stale(now) {
            short.since = now;
        }
        short.until = now + LEFT_ALONE;
        now.saturating_duration_since(short.since)
    }

    /// Notes that a class got all that it asked for.
    pub(crate) fn over(&mut self, pool: &PoolId, class: i32) {
        if let Some(classes) = self.0.get_mut(pool) {
            classes.remove(&class);
        }
    }

    /// Has all of them looked at again; whether there are any. Since when they are short is remembered.
    pub(crate) fn forget(&mut self) -> bool {
        let now = Instant::now();
        let mut any = false;
        for short in self.0.values_mut().flat_map(HashMap::values_mut) {
            any |= short.until > now;
            short.until = short.until.min(now);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R7.7: a class that is short is left alone for a moment, and remembered as short for as long as it is asked for.
    #[test]
    fn a_short_class_is_left_alone_for_a_moment() {
        let pool = PoolId::builtin();
        let start = Instant::now();
        let mut short = ShortClasses::default();
        assert_eq!(short.met(&pool, 7, start), Duration::ZERO);
        assert_eq!(short.of(&pool, start).0, [7]);
        let later = start + LEFT_ALONE;
        assert!(short.of(&pool, later).0.is_empty());
        assert_eq!(short.met(&pool, 7, later), LEFT_ALONE);
        assert_eq!(short.waited(&pool, 7, later), LEFT_ALONE);
        let long_after = later + LEFT_ALONE * 20;
        assert_eq!(short.waited(&pool, 7, long_after), Duration::ZERO);
        assert_eq!(short.met(&pool, 7, long_after), Duration::ZERO);
        short.over(&pool, 7);
        assert!(short.of(&pool, long_after).0.is_empty());
    }
}
