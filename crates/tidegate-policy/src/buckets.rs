//! How many runs of a bucket a tenant may have running (R3.3, R3.4, R15.1).
//!
//! Not done here: what a tenant's tier and override are, see [`crate::tiers`].

use tidegate_model::run::QuotaBucket;

/// A named set of caps per tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// Its name, as shown with the limits it gives.
    pub name: &'static str,
    /// The soft cap of foreground runs.
    pub foreground: i64,
    /// The hard cap of background runs.
    pub background: i64,
}

/// The built-in tiers. The first one holds for every tenant that has no other.
pub const BUILT_IN_TIERS: [Tier; 3] = [
    Tier {
        name: "standard",
        foreground: 2,
        background: 1,
    },
    Tier {
        name: "plus",
        foreground: 4,
        background: 2,
    },
    Tier {
        name: "dedicated",
        foreground: 8,
        background: 4,
    },
];

/// The tier of every tenant that has no other.
pub const STANDARD: Tier = BUILT_IN_TIERS[0];

/// The hard cap of background runs while fairness is off, whatever the tier.
pub const BACKGROUND_CAP_WITHOUT_FAIRNESS: i64 = 1;

/// The highest hard cap that any tier or override may give: background slots are numbered up to it.
pub const BACKGROUND_CAP_MAX: i64 = 64;

const _: () = {
    let mut tier = 0;
    while tier < BUILT_IN_TIERS.len() {
        assert!(
            BUILT_IN_TIERS[tier].background <= BACKGROUND_CAP_MAX,
            "every built-in hard cap has slots"
        );
        tier += 1;
    }
};

impl Tier {
    /// The built-in tier of this name.
    pub fn built_in(name: &str) -> Option<Self> {
        BUILT_IN_TIERS.into_iter().find(|tier| tier.name == name)
    }

    /// The most that may run of a bucket, fairness on; `None` where the bucket is not capped.
    pub const fn cap(self, bucket: QuotaBucket) -> Option<i64> {
        match bucket {
            QuotaBucket::Foreground => Some(self.foreground),
            QuotaBucket::Background => Some(self.background),
            QuotaBucket::Uncounted => None,
        }
    }
}

/// Whether racing claims may exceed the cap, each by at most what it saw free (foreground), or nobody ever may
/// (background). Uncounted runs have no cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapKind {
    /// Decided in the one claim statement.
    Soft,
    /// Decided under the tenant's lock by a statement of its own.
    Hard,
    /// None.
    Uncapped,
}

/// How the cap of a bucket is kept.
pub const fn cap_kind(bucket: QuotaBucket) -> CapKind {
    match bucket {
        QuotaBucket::Foreground => CapKind::Soft,
        QuotaBucket::Background => CapKind::Hard,
        QuotaBucket::Uncounted => CapKind::Uncapped,
    }
}

/// The cap in force, given the tenant's cap with fairness on; `None` is uncapped.
///
/// Fairness off lifts the cap of foreground and leaves background at 1 (R3.3, R3.4). A background cap is never absent
/// and never above [`BACKGROUND_CAP_MAX`].
pub const fn effective_cap(
    bucket: QuotaBucket,
    cap: Option<i64>,
    fairness_on: bool,
) -> Option<i64> {
    match (bucket, fairness_on) {
        (QuotaBucket::Uncounted, _) | (QuotaBucket::Foreground, false) => None,
        (QuotaBucket::Foreground, true) => cap,
        (QuotaBucket::Background, false) => Some(BACKGROUND_CAP_WITHOUT_FAIRNESS),
        (QuotaBucket::Background, true) => match cap {
            None => Some(STANDARD.background),
            Some(cap) if cap > BACKGROUND_CAP_MAX => Some(BACKGROUND_CAP_MAX),
            within => within,
        },
    }
}

/// How many more may start, given how many run; never negative, `None` is unbounded.
///
/// The claim statement computes the same with `greatest(0, cap - running)`.
pub const fn room(cap: Option<i64>, running: i64) -> Option<i64> {
    match cap {
        None => None,
        Some(cap) => {
            let running = if running < 0 { 0 } else { running };
            let room = cap.saturating_sub(running);
            Some(if room < 0 { 0 } else { room })
        }
    }
}

/// How many runs a claim takes from a lane: no more than asked, than queued, than there is room.
pub fn take(asked: u32, queued: i64, cap: Option<i64>, running: i64) -> u32 {
    let most = i64::from(asked).min(queued.max(0));
    let most = room(cap, running).map_or(most, |room| most.min(room));
    u32::try_from(most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R3.3, R3.4, R15.1: the built-in tiers.
    #[test]
    fn built_in_tiers_are_two_four_eight_and_one_two_four() {
        let caps = BUILT_IN_TIERS.map(|tier| (tier.name, tier.foreground, tier.background));
        assert_eq!(
            caps,
            [("standard", 2, 1), ("plus", 4, 2), ("dedicated", 8, 4)]
        );
        assert_eq!(Tier::built_in("plus"), Some(BUILT_IN_TIERS[1]));
        assert_eq!(Tier::built_in("gold"), None);
        assert_eq!(STANDARD.name, "standard");
    }

    /// R3.4, R3.5: fairness off lifts the soft cap only.
    #[test]
    fn fairness_off_leaves_background_at_one() {
        use QuotaBucket::{Background, Foreground, Uncounted};
        for (bucket, cap, fair, expected) in [
            (Foreground, Some(4), true, Some(4)),
            (Foreground, Some(4), false, None),
            (Background, Some(4), true, Some(4)),
            (Background, Some(4), false, Some(1)),
            (Background, None, true, Some(1)),
            (Background, None, false, Some(1)),
            (Background, Some(1_000), true, Some(64)),
            (Uncounted, Some(4), true, None),
            (Uncounted, None, false, None),
        ] {
            assert_eq!(
                effective_cap(bucket, cap, fair),
                expected,
                "{bucket} {cap:?} {fair}"
            );
        }
    }

    #[test]
    fn room_is_never_negative_and_take_never_exceeds_it() {
        assert_eq!(room(Some(2), 5), Some(0));
        assert_eq!(room(Some(2), -5), Some(2));
        assert_eq!(room(Some(i64::MIN), i64::MAX), Some(0));
        assert_eq!(room(None, 5), None);
        assert_eq!(take(8, 3, Some(2), 1), 1);
        assert_eq!(take(8, 3, None, 100), 3);
        assert_eq!(take(8, -1, None, 0), 0);
        assert_eq!(take(1, i64::MAX, Some(2), 0), 1);
    }
}
