//! The lanes as this instance knows them, and what claims are planned on (R3.8).
//!
//! A hint, never a grant: the claim statement counts again. What is read from the database replaces what was thought;
//! between two readings the book follows what this instance does itself and what others hint at.

use std::{
    collections::{BTreeMap, HashMap, HashSet, btree_map},
    ops::Bound,
};

use tidegate_model::{Capability, TenantId, run::QuotaBucket};
use tidegate_policy::{
    buckets::{self, Tier},
    estimates::MovingMean,
    fairness::{self, GroupHead, LaneView, Passes, Work},
    tiers::Tiers,
};
use tidegate_store::{
    attempts::{
        bucket_number,
        open::{LaneAsk, OpenedLease, Place},
    },
    lanes::{LaneKey, views::LaneChunk, views::LaneRow},
};

/// How often a lane under a cap that gave less than was asked is asked again before the next reading: another claimer may
/// just hold the tenant's lock.
const MISSES_MAX: u32 = 3;

/// The place of a run that was woken, taken over or let in by the turn before it.
pub(crate) const AT_THE_HEAD: (i16, i16) = (Place::FIRST.rank, Place::FIRST.urgency);

/// A lane that has got work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneHint {
    /// Which.
    pub lane: LaneKey,
    /// What a pool must offer.
    pub capability: Capability,
    /// Rank and negated priority of the new run.
    pub place: (i16, i16),
    /// When it was created, in milliseconds.
    pub created_ms: i64,
}

/// Which requirement classes a pool may serve.
pub(crate) trait Serves: std::fmt::Debug + Sync {
    /// Whether it may serve a class.
    fn serves(&self, class: i32) -> bool;
}

/// What a claim may take, from where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want<'a> {
    /// Which requirement classes the worker's pool may serve.
    pub serves: &'a dyn Serves,
    /// At most this many runs.
    pub runs: u32,
    /// At most this many of bucket background.
    pub background: u32,
    /// Whether fairness is on.
    pub fair: bool,
}

/// The share of a tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Its caps.
    pub tier: Tier,
    /// Its weight.
    pub weight: u32,
}

impl Share {
    /// What a tenant has where tiers and overrides are these (R15.1).
    pub(crate) fn of(tiers: &Tiers, tenant: &TenantId) -> Self {
        let shares = tiers.of(tenant);
        Self {
            tier: shares.caps(),
            weight: shares.weight.value,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    groups: BTreeMap<(i16, TenantId), Group>,
    passes: Passes,
    costs: HashMap<Capability, MovingMean>,
    /// Requirement classes of descendants of background roots (R3.6), as far as they were read; never another kind's.
    background: HashSet<i32>,
    /// What claims of this instance are just asking for: the next one asks for the rest.
    in_flight: InFlight,
    /// Rises with all that is learned of lanes.
    learned: u64,
}

/// Runs that are being asked for, by group and requirement class.
#[derive(Debug, Default)]
struct InFlight(HashMap<(i16, TenantId), HashMap<i32, i64>>);

impl InFlight {
    fn add(&mut self, ask: &LaneAsk) {
        let group = self.0.entry(group_key(ask.bucket, &ask.tenant));
        *group.or_default().entry(ask.class).or_default() += i64::from(ask.take);
    }

    fn remove(&mut self, ask: &LaneAsk) {
        let key = group_key(ask.bucket, &ask.tenant);
        if let Some(group) = self.0.get_mut(&key) {
            if let Some(takes) = group.get_mut(&ask.class) {
                *takes -= i64::from(ask.take);
            }
            group.retain(|_, takes| *takes > 0);
            if group.is_empty() {
                self.0.remove(&key);
            }
        }
    }

    /// What is being asked of a lane.
    fn of_lane(&self, group: &(i16, TenantId), class: i32) -> i64 {
        let lanes = self.0.get(group);
        lanes
            .and_then(|lanes| lanes.get(&class))
            .map_or(0, |takes| *takes)
    }

    /// What is being asked of a group.
    fn of_group(&self, group: &(i16, TenantId)) -> i64 {
        self.0.get(group).map_or(0, |lanes| lanes.values().sum())
    }
}

#[derive(Debug)]
struct Group {
    bucket: QuotaBucket,
    running: i64,
    /// What the running ones were charged by estimate, in cost units.
    charged: i64,
    lanes: BTreeMap<i32, Lane>,
}

#[derive(Debug)]
struct Lane {
    capability: Capability,
    head: Place,
    created_ms: i64,
    next_created_ms: Vec<i64>,
    /// `i64::MAX` for many.
    queued: i64,
    /// Nothing stands before this.
    from: Place,
    misses: u32,
    /// When something of it was learned last, by [`Book::learned`].
    learned: u64,
}

impl Lane {
    fn awake(&self, in_flight: i64) -> bool {
        self.left(in_flight) > 0 && self.misses < MISSES_MAX
    }

    /// What nobody of this instance is asking for.
    const fn left(&self, in_flight: i64) -> i64 {
        if self.queued == i64::MAX {
            i64::MAX
        } else {
            self.queued - in_flight
        }
    }
}

fn group_key(bucket: QuotaBucket, tenant: &TenantId) -> (i16, TenantId) {
    (bucket_number(bucket), tenant.clone())
}

impl Book {
    /// How much is known; a reading that begins now is told it when it comes back.
    pub(crate) const fn learned(&self) -> u64 {
        self.learned
    }

    /// Takes over what was read of the lanes after `after`, up to where the chunk ends, when so much was `known`. What was
    /// heard of a lane meanwhile the reading cannot have seen.
    pub(crate) fn read(
        &mut self,
        after: Option<&LaneKey>,
        chunk: &LaneChunk,
        known: u64,
        share: impl Fn(&TenantId) -> Share,
    ) {
        self.forget(after, chunk.next.as_ref(), known);
        self.learned += 1;
        for row in &chunk.lanes {
            if let Some(pass) = row.pass {
                self.passes.absorb(&row.tenant, pass);
            }
            let group = self
                .groups
                .entry(group_key(row.bucket, &row.tenant))
                .or_insert_with(|| Group {
                    bucket: row.bucket,
                    running: 0,
                    charged: 0,
                    lanes: BTreeMap::new(),
                });
            if row.of_background {
                self.background.insert(row.class);
            }
            group.running = row.running;
            group.charged = row.charged;
            let read = Lane::of(row, self.learned);
            match group.lanes.entry(row.class) {
                btree_map::Entry::Vacant(lane) => {
                    lane.insert(read);
                }
                btree_map::Entry::Occupied(mut heard) => heard.get_mut().take_over(read),
            }
        }
        if chunk.next.is_none() {
            self.groups
                .retain(|_, group| !group.lanes.is_empty() || group.running > 0);
            let there = self.groups.iter().map(|((_, tenant), group)| {
                let open = u64::try_from(group.charged).unwrap_or(0);
                let weight = if open > 0 { share(tenant).weight } else { 1 };
                let queued = !group.lanes.is_empty();
                let work = Work {
                    queued,
                    open,
                    weight,
                };
                (tenant, work)
            });
            self.passes.observe(there);
        }
    }

    /// Drops the lanes from behind `after` up to `last`, but for those of which something was heard since so much was known.
    fn forget(&mut self, after: Option<&LaneKey>, last: Option<&LaneKey>, known: u64) {
        let from = after.map_or(Bound::Unbounded, |key| {
            Bound::Included(group_key(key.bucket, &key.tenant))
        });
        let to = last.map_or(Bound::Unbounded, |key| {
            Bound::Included(group_key(key.bucket, &key.tenant))
        });
        for (key, group) in self.groups.range_mut((from, to)) {
            let first = after.filter(|after| group_key(after.bucket, &after.tenant) == *key);
            let end = last.filter(|last| group_key(last.bucket, &last.tenant) == *key);
            group.lanes.retain(|class, lane| {
                lane.learned > known
                    || first.is_some_and(|after| *class <= after.class)
                    || end.is_some_and(|last| *class > last.class)
            });
        }
    }

    /// A run has come into a lane.
    pub(crate) fn queued(&mut self, hint: &LaneHint) {
        self.learned += 1;
        let group = self
            .groups
            .entry(group_key(hint.lane.bucket, &hint.lane.tenant))
            .or_insert_with(|| Group {
                bucket: hint.lane.bucket,
                running: 0,
                charged: 0,
                lanes: BTreeMap::new(),
            });
        let (rank, urgency) = hint.place;
        let place = Place {
            rank,
            urgency,
            position: i64::MAX,
        };
        let lane = group.lanes.entry(hint.lane.class).or_insert_with(|| Lane {
            capability: hint.capability.clone(),
            head: place,
            created_ms: hint.created_ms,
            next_created_ms: Vec::new(),
            queued: 0,
            from: Place::FIRST,
            misses: 0,
            learned: 0,
        });
        if lane.queued <= 0 || place < lane.head {
            lane.head = place;
            lane.created_ms = hint.created_ms;
        }
        // Something that stands before all that was seen: the next claim looks from the start.
        if (place.rank, place.urgency) < (lane.from.rank, lane.from.urgency) {
            lane.from = Place::FIRST;
        }
        lane.queued = lane.queued.saturating_add(1);
        lane.misses = 0;
        lane.learned = self.learned;
    }

    /// Leases of a tenant's bucket have ended.
    pub(crate) fn freed(&mut self, bucket: QuotaBucket, tenant: &TenantId, leases: i64) {
        if let Some(group) = self.groups.get_mut(&group_key(bucket, tenant)) {
            let left = (group.running - leases).max(0);
            // Which of them have ended is not said; on the average they were charged alike.
            group.charged = group.charged / group.running.max(1) * left;
            group.running = left;
            for lane in group.lanes.values_mut() {
                lane.misses = 0;
            }
        }
    }

    /// Settles what a run was charged with what it has cost, and learns from it.
    pub(crate) fn settle(
        &mut self,
        tenant: &TenantId,
        capability: &Capability,
        charged: u64,
        cost: u64,
        weight: u32,
    ) {
        self.passes.settle(tenant, charged, cost, weight);
        if let Some(mean) = self.costs.get_mut(capability) {
            mean.add(cost);
        } else {
            let mut mean = MovingMean::default();
            mean.add(cost);
            self.costs.insert(capability.clone(), mean);
        }
    }

    /// The passes, for storing them.
    pub(crate) fn passes(&mut self) -> &mut Passes {
        &mut self.passes
    }

    fn cost(&self, capability: &Capability) -> u64 {
        self.costs
            .get(capability)
            .copied()
            .unwrap_or_default()
            .estimate()
    }

    /// Whether a claim may take from a lane.
    fn reaches(&self, want: Want<'_>, member: Member<'_>, class: i32, lane: &Lane) -> bool {
        let in_flight = self.in_flight.of_lane(member.key, class);
        lane.awake(in_flight)
            && want.serves.serves(class)
            && self.background.contains(&class) == member.of_background
    }

    /// A tenant's bucket as the shortlist takes it, by the first run that a claim reaches.
    fn head(
        &self,
        want: Want<'_>,
        member: Member<'_>,
        share: impl Fn(&TenantId) -> Share,
    ) -> Option<GroupHead> {
        let group = member.group;
        let lane = group.first(|class, lane| self.reaches(want, member, class, lane))?;
        let share = share(member.tenant());
        let cap = buckets::effective_cap(group.bucket, share.tier.cap(group.bucket), want.fair);
        let in_flight = self.in_flight.of_group(member.key);
        if cap.is_some() && in_flight > 0 {
            // The claim that is under way holds the lock of the bucket; it wakes the next one.
            return None;
        }
        Some(GroupHead {
            bucket: group.bucket,
            of_background: member.of_background,
            running: group.running + in_flight,
            cap,
            weight: share.weight,
            pass: self.passes.of(member.tenant()),
            created_ms: lane.created_ms,
            position: lane.head.position,
        })
    }

    /// What to ask of which lanes, in order.
    pub(crate) fn plan(&self, want: Want<'_>, share: impl Fn(&TenantId) -> Share) -> Vec<LaneAsk> {
        let mut members: Vec<Member<'_>> = Vec::new();
        let mut heads: Vec<GroupHead> = Vec::new();
        for (key, group) in &self.groups {
            for of_background in [false, true] {
                let background = of_background || group.bucket == QuotaBucket::Background;
                if (background && want.background == 0)
                    || (of_background && self.background.is_empty())
                {
                    continue;
                }
                let member = Member {
                    key,
                    group,
                    of_background,
                };
                if let Some(head) = self.head(want, member, &share) {
                    heads.push(head);
                    members.push(member);
                }
            }
        }
        let mut views = Vec::new();
        let mut lanes: Vec<&Lane> = Vec::new();
        for index in fairness::shortlist(&heads, want.runs, want.fair) {
            let (member, head) = (members[index], &heads[index]);
            let tenant = member.tenant();
            for (class, lane) in &member.group.lanes {
                if self.reaches(want, member, *class, lane) {
                    views.push(LaneView {
                        bucket: head.bucket,
                        of_background: head.of_background,
                        tenant: tenant.clone(),
                        class: *class,
                        weight: head.weight,
                        running: head.running,
                        cap: share(tenant).tier.cap(head.bucket),
                        head_rank: lane.head.rank,
                        head_urgency: lane.head.urgency,
                        head_position: lane.head.position,
                        head_created_ms: lane.created_ms,
                        next_created_ms: lane.next_created_ms.clone(),
                        queued_hint: lane.left(self.in_flight.of_lane(member.key, *class)),
                        pass: head.pass,
                        cost: self.cost(&lane.capability),
                    });
                    lanes.push(lane);
                }
            }
        }
        let plan = fairness::plan(&views, want.runs, want.background, want.fair);
        plan.into_iter()
            .map(|ask| {
                let view = &views[ask.lane];
                LaneAsk {
                    bucket: view.bucket,
                    tenant: view.tenant.clone(),
                    class: view.class,
                    take: i32::try_from(ask.take).unwrap_or(i32::MAX),
                    cap: ask.cap.map(|cap| i32::try_from(cap).unwrap_or(i32::MAX)),
                    cost: i64::try_from(view.cost).unwrap_or(i64::MAX),
                    from: lanes[ask.lane].from,
                }
            })
            .collect()
    }

    /// Takes note that a claim asks; answers what is known at this moment.
    pub(crate) fn asks(&mut self, asks: &[LaneAsk]) -> u64 {
        for ask in asks {
            self.in_flight.add(ask);
        }
        self.learned
    }

    /// The claim that asked has had its answer, or was given up.
    pub(crate) fn answered(&mut self, asks: &[LaneAsk]) {
        for ask in asks {
            self.in_flight.remove(ask);
        }
    }

    /// What the lanes gave that were asked when so much was known. Whether another look soon may give more.
    pub(crate) fn took(
        &mut self,
        known: u64,
        asks: &[LaneAsk],
        opened: &[OpenedLease],
        share: impl Fn(&TenantId) -> Share,
    ) -> bool {
        let mut gifts: Vec<(i64, Option<&OpenedLease>)> = vec![(0, None); asks.len()];
        for lease in opened {
            let Some((taken, last)) = gifts.get_mut(lease.ask) else {
                continue;
            };
            *taken += 1;
            if last.is_none_or(|last| last.place < lease.place) {
                *last = Some(lease);
            }
        }
        let mut again = false;
        for (ask, (taken, last)) in asks.iter().zip(gifts) {
            let cost = u64::try_from(ask.cost).unwrap_or(0);
            if taken > 0 {
                let cost = cost.saturating_mul(u64::try_from(taken).unwrap_or(0));
                self.passes
                    .charge(&ask.tenant, cost, share(&ask.tenant).weight);
            }
            let Some(group) = self.groups.get_mut(&group_key(ask.bucket, &ask.tenant)) else {
                continue;
            };
            group.running += taken;
            group.charged = group.charged.saturating_add(ask.cost.saturating_mul(taken));
            let Some(lane) = group.lanes.get_mut(&ask.class) else {
                continue;
            };
            again |= lane.gave(known, ask, taken, last);
        }
        again
    }
}

/// A tenant's bucket; descendants of background roots apart from others.
#[derive(Clone, Copy)]
struct Member<'a> {
    key: &'a (i16, TenantId),
    group: &'a Group,
    of_background: bool,
}

impl<'a> Member<'a> {
    const fn tenant(self) -> &'a TenantId {
        &self.key.1
    }
}

impl Group {
    /// The lane whose head comes first, of those that a claim reaches.
    fn first(&self, reaches: impl Fn(i32, &Lane) -> bool) -> Option<&Lane> {
        self.lanes
            .iter()
            .filter(|(class, lane)| reaches(**class, lane))
            .min_by_key(|(class, lane)| (lane.head, **class))
            .map(|(_, lane)| lane)
    }
}

impl Lane {
    fn of(row: &LaneRow, learned: u64) -> Self {
        let head = Place {
            rank: row.head_rank,
            urgency: row.head_urgency,
            position: row.head_position,
        };
        Self {
            capability: row.capability.clone(),
            head,
            created_ms: row.head_created_at.timestamp_millis(),
            next_created_ms: row
                .next_created_at
                .iter()
                .map(chrono::DateTime::timestamp_millis)
                .collect(),
            queued: row.queued.unwrap_or(i64::MAX),
            from: head,
            misses: 0,
            learned,
        }
    }

    /// Takes over a reading that had begun before something was heard of the lane: rather too many runs than too few.
    fn take_over(&mut self, read: Self) {
        if read.head <= self.head {
            self.head = read.head;
            self.created_ms = read.created_ms;
        }
        self.from = self.from.min(read.from);
        self.queued = self.queued.max(read.queued);
        self.next_created_ms = read.next_created_ms;
    }

    /// Follows what a claim took. Whether to ask again soon.
    fn gave(&mut self, known: u64, ask: &LaneAsk, taken: i64, last: Option<&OpenedLease>) -> bool {
        // What was learned meanwhile may count runs that the claim did not see, or that it took: rather too many.
        let newer = self.learned > known;
        if let Some(last) = last {
            // Rows behind the last one taken were skipped only where somebody else holds them.
            let next = Place {
                position: last.place.position.saturating_add(1),
                ..last.place
            };
            // Set back meanwhile: something stands before all that the claim saw.
            if self.from >= ask.from {
                self.from = self.from.max(next);
                self.head = self.head.max(next);
                self.created_ms = last.created_at.timestamp_millis();
                let passed = usize::try_from(taken).unwrap_or(0);
                self.next_created_ms
                    .drain(..passed.min(self.next_created_ms.len()));
            }
            if self.queued != i64::MAX && !newer {
                self.queued = (self.queued - taken).max(0);
            }
        }
        if taken >= i64::from(ask.take) {
            self.misses = 0;
            return false;
        }
        if ask.cap.is_none() {
            // It gave all that it had; a hint or the next reading brings it back.
            if !newer {
                self.queued = 0;
            }
            return newer;
        }
        self.misses += 1;
        self.misses < MISSES_MAX
    }
}

/// A pool that may serve everything.
#[cfg(test)]
#[derive(Debug)]
struct Everything;

#[cfg(test)]
impl Serves for Everything {
    fn serves(&self, _class: i32) -> bool {
        true
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
