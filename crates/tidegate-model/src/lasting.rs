//! When to say again what lasts: a condition that a loop meets at every turn is said when it begins or changes, then at
//! most once a minute with how often it was met, and once more when it is over. Pure: the time is an argument.

use std::time::{Duration, Instant};

/// How long after a cause was said it is said again.
pub const SAY_EVERY: Duration = Duration::from_mins(1);
/// The most causes of one condition that are told apart.
const CAUSES_MAX: usize = 8;

/// A condition that may last.
#[derive(Debug, Clone, Default)]
pub struct Lasting(Option<State>);

#[derive(Debug, Clone)]
struct State {
    since: Instant,
    times: u64,
    unsaid: u64,
    said: Vec<(String, Instant)>,
}

/// What there is to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// How often it was met since it was said last, this time included; for the end, in all.
    pub times: u64,
    /// How long it has lasted.
    pub lasts: Duration,
}

impl Lasting {
    /// Whether it lasts.
    pub const fn lasts(&self) -> bool {
        self.0.is_some()
    }

    /// It was met, with this cause. Something to say where the cause was not said within the last minute: two causes
    /// that take turns are not news at every turn.
    pub fn met(&mut self, now: Instant, cause: &str) -> Option<Said> {
        let state = self.0.get_or_insert_with(|| State {
            since: now,
            times: 0,
            unsaid: 0,
            said: Vec::new(),
        });
        state.times += 1;
        state.unsaid += 1;
        state
            .said
            .retain(|(_, at)| now.saturating_duration_since(*at) < SAY_EVERY);
        let lately = state.said.iter().any(|(said, _)| said == cause);
        if lately || state.said.len() >= CAUSES_MAX {
            return None;
        }
        state.said.push((cause.to_owned(), now));
        Some(Said {
            times: std::mem::take(&mut state.unsaid),
            lasts: now.saturating_duration_since(state.since),
        })
    }

    /// It was not met. Something to say where it was before.
    pub fn over(&mut self, now: Instant) -> Option<Said> {
        self.0.take().map(|state| Said {
            times: state.times,
            lasts: now.saturating_duration_since(state.since),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn said(times: u64, secs: u64) -> Said {
        let lasts = Duration::from_secs(secs);
        Said { times, lasts }
    }

    #[test]
    fn what_lasts_is_said_at_its_beginning_once_a_minute_and_at_its_end() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut lasting = Lasting::default();
        assert_eq!(lasting.over(at(0)), None);
        assert_eq!(lasting.met(at(0), "refused"), Some(said(1, 0)));
        for secs in 1..60 {
            assert_eq!(lasting.met(at(secs), "refused"), None, "{secs}");
        }
        assert_eq!(lasting.met(at(60), "refused"), Some(said(60, 60)));
        assert_eq!(lasting.met(at(61), "refused"), None);
        assert!(lasting.lasts());
        assert_eq!(lasting.over(at(62)), Some(said(62, 62)));
        assert!(!lasting.lasts());
        assert_eq!(
            lasting.met(at(63), "refused"),
            Some(said(1, 0)),
            "it began anew"
        );
    }

    #[test]
    fn a_change_is_said_at_once_and_causes_that_take_turns_are_not() {
        let start = Instant::now();
        let mut lasting = Lasting::default();
        let mut lines = 0;
        for turn in 0..50 {
            let cause = ["refused", "timed out"][turn % 2];
            lines += usize::from(lasting.met(start, cause).is_some());
        }
        assert_eq!(lines, 2);
        for turn in 0..50 {
            lines += usize::from(lasting.met(start, &format!("cause {turn}")).is_some());
        }
        assert_eq!(
            lines, CAUSES_MAX,
            "texts that differ each time are no flood"
        );
    }
}
