//! Which tenants a plan can reach at all, found without sorting the rest (R3.8).

use std::cmp::Ordering;

use tidegate_model::run::QuotaBucket;

use super::{PLACES, place_of};

/// A tenant's bucket with work, by its first run; descendants of background roots apart from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupHead {
    /// Its account of claims.
    pub bucket: QuotaBucket,
    /// Whether its runs descend from background roots (R3.6).
    pub of_background: bool,
    /// Runs under a lease.
    pub running: i64,
    /// The most that may run, as in force; `None` is uncapped.
    pub cap: Option<i64>,
    /// The tenant's share.
    pub weight: u32,
    /// What the tenant has been charged.
    pub pass: u64,
    /// When its first run was created.
    pub created_ms: i64,
    /// The number of its first run.
    pub position: i64,
}

/// The indices of the groups that a plan of `want` runs can give something, in no order.
///
/// A plan gives one run at a time to the first of a bucket's order, and giving only moves a group back. So `want` gifts
/// reach at most the `want` groups that are first before any is given. With fairness off a tenant's next run may be older
/// than its first one, so every group with room counts. `O(groups)`.
pub fn shortlist(groups: &[GroupHead], want: u32, fairness_on: bool) -> Vec<usize> {
    let most = usize::try_from(want).unwrap_or(usize::MAX);
    let mut chosen = Vec::new();
    if most == 0 {
        return chosen;
    }
    for place in 0..PLACES {
        let mut with_room: Vec<usize> = groups
            .iter()
            .enumerate()
            .filter(|(_, group)| {
                place_of(group.bucket, group.of_background) == place
                    && group.cap.is_none_or(|cap| group.running.max(0) < cap)
            })
            .map(|(index, _)| index)
            .collect();
        if fairness_on && with_room.len() > most {
            with_room.select_nth_unstable_by(most - 1, |a, b| {
                order(&groups[*a], &groups[*b]).then(a.cmp(b))
            });
            with_room.truncate(most);
        }
        chosen.extend(with_room);
    }
    chosen
}

/// The order of a bucket, as a plan's.
fn order(a: &GroupHead, b: &GroupHead) -> Ordering {
    let own = i128::from(a.running.max(0)) * i128::from(b.weight.max(1));
    let others = i128::from(b.running.max(0)) * i128::from(a.weight.max(1));
    own.cmp(&others)
        .then(a.pass.cmp(&b.pass))
        .then(a.created_ms.cmp(&b.created_ms))
        .then(a.position.cmp(&b.position))
}
