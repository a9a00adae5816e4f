//! Which lanes a claim asks, in which order, for how many runs (R3.3, R3.8).
//!
//! A lane is (execution scope, bucket, tenant, requirement class). The claim statement takes heads from lanes; this
//! module decides which. It sees an instance's view of the lanes, which may be half a second old: a plan never grants
//! anything, the statement counts again and may give less.
//!
//! Not done here: what a run costs is judged in [`crate::estimates`]; callers keep [`Passes`], charge them by estimate
//! and settle them at the end (R3.12).

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, HashMap},
};

use tidegate_model::{TenantId, run::QuotaBucket};

use crate::buckets;

mod passes;
mod shortlist;

pub use passes::{PassChange, Passes, Work, stored_pass};
pub use shortlist::{GroupHead, shortlist};

/// How finely a pass resolves weights: a cost unit of a tenant with weight 1 is this much pass.
const PASS_PER_COST: u64 = 1_024;

/// A lane as an instance sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// Its account of claims.
    pub bucket: QuotaBucket,
    /// Whether its runs descend from background roots: they count against what the claimer takes of background, and
    /// against no cap of the tenant (R3.6).
    pub of_background: bool,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its requirement class.
    pub class: i32,
    /// The tenant's share; 1 unless set, 0 counts as 1.
    pub weight: u32,
    /// Runs of this tenant and bucket under a lease, over all classes.
    pub running: i64,
    /// The most that may run of this tenant and bucket, fairness on; see [`buckets::effective_cap`].
    pub cap: Option<i64>,
    /// Of the first run: 0 woken or taken over, 1 others.
    pub head_rank: i16,
    /// Of the first run: its priority, negated.
    pub head_urgency: i16,
    /// Of the first run: its number in the queue.
    pub head_position: i64,
    /// Of the first run: when it was created, in milliseconds.
    pub head_created_ms: i64,
    /// When the runs after the first were created, as far as they are known; only needed with fairness off.
    pub next_created_ms: Vec<i64>,
    /// About how many runs stand in it; `i64::MAX` for "more than were counted".
    pub queued_hint: i64,
    /// What the tenant has been charged, see [`charge`].
    pub pass: u64,
    /// What one run of it is charged until its real cost is known, in cost units.
    pub cost: u64,
}

/// What to ask of one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Index into the lanes that were given.
    pub lane: usize,
    /// At most this many runs.
    pub take: u32,
    /// The most that may then run of its tenant and bucket; the statement counts again.
    pub cap: Option<i64>,
}

/// A pass after `cost` units were charged to a tenant of this weight. A pass only grows, and never overflows.
pub fn charge(pass: u64, cost: u64, weight: u32) -> u64 {
    pass.saturating_add(pass_of(cost, weight))
}

/// How much pass a cost is for a tenant of this weight.
fn pass_of(cost: u64, weight: u32) -> u64 {
    let step = cost.saturating_mul(PASS_PER_COST) / u64::from(weight.max(1));
    step.max(u64::from(cost > 0))
}

/// Shares `want` runs among the lanes, at most `want_background` of them of bucket background or of background descent.
///
/// Between tenants: fewest running of the bucket ÷ weight, then the smaller pass, then the older head, then the lower
/// number in the queue. Between a foreground and an uncounted head: the tenant with the smaller pass, foreground on a
/// tie; a background head joins by the same rule and comes last on a tie. Each run that is given counts as running and
/// is charged for the rest of the plan. Inside a tenant: rank, priority, then age.
///
/// With fairness off the oldest head comes first, whoever's it is, and foreground has no cap.
///
/// The asks are in the order of the first run given, one per lane, and together take at most `want`. A lane that
/// cannot give (nothing queued, no room) is not asked. Where a bucket has a cap at most one lane per tenant is asked,
/// because the statement counts the tenant's leases once. `O((lanes + want) log lanes)`.
pub fn plan(lanes: &[LaneView], want: u32, want_background: u32, fairness_on: bool) -> Vec<Ask> {
    let mut plan = Plan::new(lanes, fairness_on);
    let (mut left, mut left_background) = (want, want_background);
    if left_background == 0 {
        plan.leave_background();
    }
    while left > 0 {
        let Some(place) = plan.give_next() else {
            break;
        };
        left -= 1;
        if place >= BACKGROUND {
            left_background -= 1;
            if left_background == 0 {
                plan.leave_background();
            }
        }
    }
    plan.asks
}

/// Places from here on count against what the claimer takes of background.
const BACKGROUND: usize = 2;
/// How many places there are.
const PLACES: usize = BACKGROUND + 2;

const fn place(lane: &LaneView) -> usize {
    place_of(lane.bucket, lane.of_background)
}

/// Where a lane stands among equals: foreground, uncounted, background, descendants of background roots.
const fn place_of(bucket: QuotaBucket, of_background: bool) -> usize {
    match bucket {
        QuotaBucket::Foreground => 0,
        QuotaBucket::Uncounted if of_background => BACKGROUND + 1,
        QuotaBucket::Uncounted => 1,
        QuotaBucket::Background => BACKGROUND,
    }
}

/// All lanes of a tenant at a place.
struct Group {
    place: usize,
    tenant: usize,
    weight: u32,
    running: i64,
    cap: Option<i64>,
    /// How many may still be given.
    room: i64,
    lanes: BinaryHeap<LaneTurn>,
}

/// A lane among its tenant's lanes of the bucket; the greatest goes first.
#[derive(PartialEq, Eq)]
struct LaneTurn {
    lane: usize,
    rank: i16,
    urgency: i16,
    given: u32,
    position: i64,
}

impl Ord for LaneTurn {
    fn cmp(&self, other: &Self) -> Ordering {
        // What stands behind a head is not known; lanes of equal urgency take turns.
        let key = |turn: &Self| {
            (
                turn.rank,
                turn.urgency,
                turn.given,
                turn.position,
                turn.lane,
            )
        };
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for LaneTurn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A tenant's place in the order of a bucket; the greatest goes first.
#[derive(PartialEq, Eq)]
struct Turn {
    group: usize,
    fair: bool,
    running: i64,
    weight: u32,
    pass: u64,
    created_ms: i64,
    position: i64,
}

impl Turn {
    fn share(&self, other: &Self) -> Ordering {
        if !self.fair {
            return Ordering::Equal;
        }
        // running ÷ weight without division.
        let own = i128::from(self.running) * i128::from(other.weight);
        let others = i128::from(other.running) * i128::from(self.weight);
        own.cmp(&others).then(self.pass.cmp(&other.pass))
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .share(self)
            .then(other.created_ms.cmp(&self.created_ms))
            .then(other.position.cmp(&self.position))
            .then(other.group.cmp(&self.group))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Plan<'a> {
    lanes: &'a [LaneView],
    fair: bool,
    groups: Vec<Group>,
    passes: Vec<u64>,
    heaps: [BinaryHeap<Turn>; PLACES],
    asks: Vec<Ask>,
    ask_of_lane: HashMap<usize, usize>,
}

impl<'a> Plan<'a> {
    fn new(lanes: &'a [LaneView], fair: bool) -> Self {
        let mut plan = Self {
            lanes,
            fair,
            groups: Vec::new(),
            passes: Vec::new(),
            heaps: std::array::from_fn(|_| BinaryHeap::new()),
            asks: Vec::new(),
            ask_of_lane: HashMap::new(),
        };
        plan.group();
        for group in 0..plan.groups.len() {
            plan.keep_one_lane_under_a_cap(group);
            plan.queue(group);
        }
        plan
    }

    fn group(&mut self) {
        let mut tenants: HashMap<&TenantId, usize> = HashMap::new();
        let mut groups: HashMap<(usize, usize), usize> = HashMap::new();
        for (index, lane) in self.lanes.iter().enumerate() {
            if lane.queued_hint <= 0 {
                continue;
            }
            let tenant = *tenants.entry(&lane.tenant).or_insert_with(|| {
                self.passes.push(lane.pass);
                self.passes.len() - 1
            });
            self.passes[tenant] = self.passes[tenant].max(lane.pass);
            let group = *groups.entry((tenant, place(lane))).or_insert_with(|| {
                let cap = buckets::effective_cap(lane.bucket, lane.cap, self.fair);
                self.groups.push(Group {
                    place: place(lane),
                    tenant,
                    weight: lane.weight.max(1),
                    running: lane.running.max(0),
                    cap,
                    room: buckets::room(cap, lane.running).unwrap_or(i64::MAX),
                    lanes: BinaryHeap::new(),
                });
                self.groups.len() - 1
            });
            self.groups[group].lanes.push(LaneTurn {
                lane: index,
                rank: lane.head_rank,
                urgency: lane.head_urgency,
                given: 0,
                position: lane.head_position,
            });
        }
    }

    fn keep_one_lane_under_a_cap(&mut self, group: usize) {
        let group = &mut self.groups[group];
        if group.cap.is_some()
            && let Some(best) = group.lanes.pop()
        {
            group.lanes.clear();
            group.lanes.push(best);
        }
    }

    /// Puts a group into the order of its bucket, unless it has nothing to give.
    fn queue(&mut self, index: usize) {
        let group = &self.groups[index];
        if group.room <= 0 {
            return;
        }
        let Some(turn) = group.lanes.peek() else {
            return;
        };
        let lane = &self.lanes[turn.lane];
        let turn = Turn {
            group: index,
            fair: self.fair,
            running: group.running,
            weight: group.weight,
            pass: self.passes[group.tenant],
            created_ms: created_ms(lane, turn.given),
            position: turn.position,
        };
        self.heaps[group.place].push(turn);
    }

    /// Gives nothing more of background.
    fn leave_background(&mut self) {
        for heap in &mut self.heaps[BACKGROUND..] {
            heap.clear();
        }
    }

    /// Gives one run to whoever is next; the place it came from.
    fn give_next(&mut self) -> Option<usize> {
        let mut best = None;
        for place in 0..self.heaps.len() {
            self.freshen(place);
            if let Some(turn) = self.heaps[place].peek() {
                let key = if self.fair {
                    (turn.pass, 0, 0, place)
                } else {
                    (0, turn.created_ms, turn.position, place)
                };
                best = Some(best.map_or(key, |other: (u64, i64, i64, usize)| other.min(key)));
            }
        }
        let turn = self.heaps[best?.3].pop()?;
        self.give(turn.group);
        self.queue(turn.group);
        Some(self.groups[turn.group].place)
    }

    /// A tenant's pass may have grown by what another of its buckets was given; passes only grow, so that looking at
    /// the first one again is enough.
    fn freshen(&mut self, place: usize) {
        while let Some(turn) = self.heaps[place].peek() {
            if turn.pass == self.passes[self.groups[turn.group].tenant] {
                return;
            }
            let group = turn.group;
            self.heaps[place].pop();
            self.queue(group);
        }
    }

    fn give(&mut self, index: usize) {
        let group = &mut self.groups[index];
        let Some(mut turn) = group.lanes.pop() else {
            return;
        };
        group.running += 1;
        group.room -= 1;
        let pass = &mut self.passes[group.tenant];
        *pass = charge(*pass, self.lanes[turn.lane].cost, group.weight);
        let ask = *self.ask_of_lane.entry(turn.lane).or_insert_with(|| {
            self.asks.push(Ask {
                lane: turn.lane,
                take: 0,
                cap: group.cap,
            });
            self.asks.len() - 1
        });
        self.asks[ask].take += 1;
        turn.given += 1;
        if i64::from(turn.given) < self.lanes[turn.lane].queued_hint {
            group.lanes.push(turn);
        }
    }
}

/// When the run after `given` others was created, or the last one that is known.
fn created_ms(lane: &LaneView, given: u32) -> i64 {
    let next = usize::try_from(given).unwrap_or(usize::MAX);
    match next {
        0 => lane.head_created_ms,
        n => lane
            .next_created_ms
            .get(n - 1)
            .or(lane.next_created_ms.last())
            .copied()
            .unwrap_or(lane.head_created_ms),
    }
}

#[cfg(test)]
mod tests;
