//! What a run will cost, judged by those before it (R3.12).
//!
//! Cost counts one unit per millisecond under a lease and one per token: a thousand tokens weigh as much as a second of a
//! worker. Until a capability has been seen a run of it counts as one second.

/// What a run counts as before its capability has been seen, in cost units.
pub const FIRST_COST: u64 = 1_000;

/// One part in this many of a mean is the newest run.
const NEWEST: u64 = 8;

/// The cost of an attempt; at least 1, so that nobody is served for nothing while another one waits.
pub fn cost(under_lease_ms: i64, tokens: i64) -> u64 {
    let ms = u64::try_from(under_lease_ms).unwrap_or(0);
    ms.saturating_add(u64::try_from(tokens).unwrap_or(0)).max(1)
}

/// A moving mean of costs; the newest runs weigh most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovingMean(u64);

impl Default for MovingMean {
    fn default() -> Self {
        Self(FIRST_COST)
    }
}

impl MovingMean {
    /// The estimate; at least 1, so that every run is charged something.
    pub fn estimate(self) -> u64 {
        self.0.max(1)
    }

    /// Takes a run into account.
    pub fn add(&mut self, cost: u64) {
        let rest = self.0 - self.0 / NEWEST;
        self.0 = rest.saturating_add(cost.div_ceil(NEWEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R3.12: the estimate follows what runs cost, from above and from below.
    #[test]
    fn the_mean_follows_the_costs() {
        let mut mean = MovingMean::default();
        assert_eq!(mean.estimate(), FIRST_COST);
        for _ in 0..60 {
            mean.add(34_000);
        }
        assert!((33_000..=34_100).contains(&mean.estimate()), "{mean:?}");
        for _ in 0..120 {
            mean.add(0);
        }
        assert!(mean.estimate() <= 10, "{mean:?}");
        mean.add(u64::MAX);
        mean.add(u64::MAX);
        assert!(mean.estimate() >= u64::MAX / 8);
    }

    #[test]
    fn absurd_figures_cost_next_to_nothing_or_everything() {
        assert_eq!(cost(-5, -7), 1);
        assert_eq!(cost(1_500, 500), 2_000);
        assert_eq!(cost(i64::MAX, i64::MAX), u64::MAX - 1);
    }
}
