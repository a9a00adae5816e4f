//! The passes of the tenants that have work, as one instance keeps them (R3.3, R3.8, R3.12).

use std::collections::HashMap;

use tidegate_model::TenantId;

use super::pass_of;

/// What each tenant has been charged: what is stored, and what this instance has yet to add to it.
///
/// A tenant is there as long as it has runs that are queued or running. One that comes up starts at the smallest pass of
/// those that are queued, so that it neither waits for what others had before nor may catch up on a time in which it asked
/// for nothing; while it is there nothing but its own runs moves its pass. What is stored survives a restart: of the
/// tenants that an instance finds when it starts those without a stored pass were never charged, and stand at the floor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passes {
    known: HashMap<TenantId, Account>,
    /// The smallest pass of the tenants that are queued, less what is charged for runs under way; never falls.
    floor: u64,
    pending: HashMap<TenantId, Pending>,
    /// Whether it was ever said who is there.
    observed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    pass: u64,
    /// Where it started when it came up.
    from: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    change: i64,
    from: u64,
}

/// A change of a tenant's pass that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassChange {
    /// Whose.
    pub tenant: TenantId,
    /// By how much; negative where runs cost less than was estimated.
    pub change: i64,
    /// What is stored counts as no less before the change: where the tenant started when it came up. Not the floor of this
    /// moment, which may have risen by the very change that is added to it.
    pub from: u64,
}

/// What is stored of a tenant after a change. The statement that stores it computes the same.
pub fn stored_pass(stored: Option<u64>, change: &PassChange) -> u64 {
    stored
        .unwrap_or(0)
        .max(change.from)
        .saturating_add_signed(change.change)
        .min(i64::MAX.unsigned_abs())
}

/// What a tenant has to do at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Whether runs of it are queued; else some are running.
    pub queued: bool,
    /// Cost units that are charged for its runs under way, by estimate.
    pub open: u64,
    /// Its share; of no matter where nothing is open.
    pub weight: u32,
}

impl Passes {
    /// The pass of a tenant.
    pub fn of(&self, tenant: &TenantId) -> u64 {
        self.account(tenant).pass
    }

    fn account(&self, tenant: &TenantId) -> Account {
        self.known.get(tenant).copied().unwrap_or(Account {
            pass: self.floor,
            from: self.floor,
        })
    }

    /// The smallest pass of the tenants that are queued.
    pub const fn floor(&self) -> u64 {
        self.floor
    }

    /// Charges a tenant by estimate for what it was given.
    pub fn charge(&mut self, tenant: &TenantId, cost: u64, weight: u32) {
        self.change(
            tenant,
            i64::try_from(pass_of(cost, weight)).unwrap_or(i64::MAX),
        );
    }

    /// Settles what a run was charged with what it has cost.
    pub fn settle(&mut self, tenant: &TenantId, charged: u64, cost: u64, weight: u32) {
        let charged = i64::try_from(pass_of(charged, weight)).unwrap_or(i64::MAX);
        let cost = i64::try_from(pass_of(cost, weight)).unwrap_or(i64::MAX);
        self.change(tenant, cost.saturating_sub(charged));
    }

    fn change(&mut self, tenant: &TenantId, change: i64) {
        if change == 0 {
            return;
        }
        let mut account = self.account(tenant);
        account.pass = account.pass.saturating_add_signed(change);
        self.known.insert(tenant.clone(), account);
        self.add_pending(tenant.clone(), change, account.from);
    }

    fn add_pending(&mut self, tenant: TenantId, change: i64, from: u64) {
        let pending = self
            .pending
            .entry(tenant)
            .or_insert(Pending { change: 0, from });
        pending.change = pending.change.saturating_add(change);
    }

    /// Takes what is to be stored, in the order of the tenants, so that no two instances wait for each other's rows.
    pub fn take_pending(&mut self) -> Vec<PassChange> {
        let mut changes: Vec<PassChange> = self
            .pending
            .drain()
            .filter(|(_, pending)| pending.change != 0)
            .map(|(tenant, Pending { change, from })| PassChange {
                tenant,
                change,
                from,
            })
            .collect();
        changes.sort_by(|a, b| a.tenant.cmp(&b.tenant));
        changes
    }

    /// Gives back changes that could not be stored.
    pub fn give_back(&mut self, changes: Vec<PassChange>) {
        for PassChange {
            tenant,
            change,
            from,
        } in changes
        {
            self.add_pending(tenant, change, from);
        }
    }

    /// Takes over a pass that is stored, which holds what other instances charged too.
    pub fn absorb(&mut self, tenant: &TenantId, stored: u64) {
        let pending = self.pending.get(tenant).map_or(0, |pending| pending.change);
        let Account { from, .. } = self.account(tenant);
        let pass = stored.max(from).saturating_add_signed(pending);
        self.known.insert(tenant.clone(), Account { pass, from });
    }

    /// Takes over the floor that is stored.
    pub fn absorb_floor(&mut self, stored: u64) {
        self.floor = self.floor.max(stored);
    }

    /// Says which tenants are there; forgets the others and raises the floor.
    pub fn observe<'a>(&mut self, there: impl IntoIterator<Item = (&'a TenantId, Work)>) {
        let mut works: HashMap<&TenantId, Work> = HashMap::new();
        for (tenant, work) in there {
            let all = works.entry(tenant).or_default();
            all.queued |= work.queued;
            all.open = all.open.saturating_add(work.open);
            all.weight = all.weight.max(work.weight);
        }
        if !std::mem::replace(&mut self.observed, true) {
            self.come_up(works.keys().copied());
        }
        let settled = |queued: bool| {
            let matching = works.iter().filter(move |(_, work)| work.queued == queued);
            matching
                .filter_map(|(tenant, work)| {
                    let account = self.known.get(*tenant)?;
                    Some(account.pass.saturating_sub(pass_of(work.open, work.weight)))
                })
                .min()
        };
        // Where nobody stays the highest pass stays behind: whoever comes next starts level.
        let highest = || self.known.values().map(|account| account.pass).max();
        let floor = settled(true).or_else(|| settled(false)).or_else(highest);
        self.floor = floor.map_or(self.floor, |pass| self.floor.max(pass));
        self.known.retain(|tenant, _| works.contains_key(tenant));
        self.come_up(works.into_keys());
    }

    fn come_up<'a>(&mut self, tenants: impl Iterator<Item = &'a TenantId>) {
        for tenant in tenants {
            if !self.known.contains_key(tenant) {
                self.known.insert(tenant.clone(), self.account(tenant));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{estimates::FIRST_COST, fairness::charge};

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    fn observe<const N: usize>(passes: &mut Passes, queued: [&TenantId; N]) {
        let work = Work {
            queued: true,
            open: 0,
            weight: 1,
        };
        passes.observe(queued.map(|tenant| (tenant, work)));
    }

    /// R3.8: a new tenant starts at the smallest active pass; one that was away does not catch up.
    #[test]
    fn newcomers_start_at_the_smallest_active_pass() {
        let (acme, globex, late) = (tenant("acme"), tenant("globex"), tenant("late"));
        let mut passes = Passes::default();
        observe(&mut passes, [&acme, &globex]);
        for _ in 0..10 {
            passes.charge(&acme, FIRST_COST, 1);
            passes.charge(&globex, FIRST_COST, 2);
        }
        assert_eq!(passes.of(&acme), 2 * passes.of(&globex));
        observe(&mut passes, [&acme, &globex, &late]);
        assert_eq!(passes.of(&late), passes.of(&globex));
        // Away and back: level with the others, however little it had been charged.
        observe(&mut passes, [&acme]);
        passes.charge(&acme, FIRST_COST, 1);
        observe(&mut passes, [&acme, &late]);
        assert_eq!(passes.of(&late), passes.of(&acme));
        assert_eq!(passes.of(&acme), charge(0, 11 * FIRST_COST, 1));
    }

    /// R3.8: at a restart whoever was there and was never charged does not come after those who were.
    #[test]
    fn a_restart_keeps_those_who_wait_before_those_who_were_served() {
        let (acme, globex, late) = (tenant("acme"), tenant("globex"), tenant("late"));
        let mut passes = Passes::default();
        passes.absorb_floor(10);
        passes.absorb(&acme, charge(10, FIRST_COST, 1));
        observe(&mut passes, [&acme, &globex]);
        assert_eq!(passes.of(&globex), 10);
        passes.charge(&globex, 2 * FIRST_COST, 1);
        // Who comes up later starts at the smallest pass of that time.
        observe(&mut passes, [&acme, &globex, &late]);
        assert_eq!(passes.of(&late), passes.of(&acme));
    }

    #[test]
    fn an_idle_time_leaves_everybody_level() {
        let (acme, globex) = (tenant("acme"), tenant("globex"));
        let mut passes = Passes::default();
        observe(&mut passes, [&acme]);
        passes.charge(&acme, FIRST_COST, 1);
        observe(&mut passes, []);
        assert_eq!(passes.of(&acme), passes.of(&globex));
        assert_eq!(passes.of(&acme), charge(0, FIRST_COST, 1));
    }

    /// R3.12: what was charged by estimate is settled by cost, and what is stored counts for every instance.
    #[test]
    fn estimates_are_settled_and_stored_passes_count() {
        let acme = tenant("acme");
        let (mut one, mut other) = (Passes::default(), Passes::default());
        observe(&mut one, [&acme]);
        one.charge(&acme, 1_000, 1);
        one.settle(&acme, 1_000, 34_000, 1);
        assert_eq!(one.of(&acme), charge(0, 34_000, 1));
        let changes = one.take_pending();
        assert!(one.take_pending().is_empty());
        let stored = u64::try_from(changes[0].change).unwrap();
        observe(&mut other, [&acme]);
        other.charge(&acme, 1_000, 1);
        other.absorb(&acme, stored);
        assert_eq!(other.of(&acme), charge(0, 35_000, 1));
        // What was stored before it came up counts as no less than where it started.
        assert_eq!(stored_pass(Some(3), &changes[0]), charge(0, 34_000, 1) + 3);
        // A change that could not be stored is not lost.
        let pending = other.take_pending();
        other.give_back(pending.clone());
        assert_eq!(other.take_pending(), pending);
    }

    /// R3.8, R3.12: while a tenant is there nothing but its own runs moves its pass: not a floor that has risen, not the
    /// estimates of others, and not that its last run has left the queue.
    #[test]
    fn a_rising_floor_moves_nobody_who_is_there() {
        let (acme, globex, late) = (tenant("acme"), tenant("globex"), tenant("late"));
        let mut passes = Passes::default();
        observe(&mut passes, [&acme, &globex]);
        // A long run of acme is under way, charged far too little, and nothing more of it is queued.
        passes.charge(&acme, 1_000, 1);
        passes.charge(&globex, 17_000, 1);
        let running = Work {
            queued: false,
            open: 1_000,
            weight: 1,
        };
        let queued = Work {
            queued: true,
            open: 2_000,
            weight: 1,
        };
        passes.observe([(&acme, running), (&globex, queued)]);
        assert_eq!(passes.floor(), charge(0, 15_000, 1), "without estimates");
        assert_eq!(passes.of(&late), passes.floor());
        passes.settle(&acme, 1_000, 34_000, 1);
        assert_eq!(passes.of(&acme), charge(0, 34_000, 1));
        for change in passes.take_pending() {
            assert_eq!(stored_pass(None, &change), passes.of(&change.tenant));
            passes.absorb(&change.tenant, stored_pass(None, &change));
        }
        assert_eq!(passes.of(&acme), charge(0, 34_000, 1));
        assert_eq!(passes.of(&globex), charge(0, 17_000, 1));
    }
}
