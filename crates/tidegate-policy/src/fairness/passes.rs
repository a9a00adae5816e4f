//! The passes of the tenants that have work, as one instance keeps them (R3.3, R3.8, R3.12).

use std::collections::HashMap;

use tidegate_model::TenantId;

use super::pass_of;

/// What each tenant has been charged: what is stored, and what this instance has yet to add to it.
///
/// A tenant that comes up starts at the smallest pass of those that have work, so that it neither waits for what others
/// had before nor may catch up on a time in which it asked for nothing. What is stored survives a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passes {
    known: HashMap<TenantId, u64>,
    /// The smallest pass of the tenants with work; never falls.
    floor: u64,
    pending: HashMap<TenantId, i64>,
}

/// A change of a tenant's pass that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassChange {
    /// Whose.
    pub tenant: TenantId,
    /// By how much; negative where runs cost less than was estimated.
    pub change: i64,
}

impl Passes {
    /// The pass of a tenant.
    pub fn of(&self, tenant: &TenantId) -> u64 {
        self.known.get(tenant).copied().unwrap_or(self.floor)
    }

    /// The smallest pass of the tenants with work.
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
        let pass = self.of(tenant).saturating_add_signed(change);
        self.known.insert(tenant.clone(), pass);
        let pending = self.pending.entry(tenant.clone()).or_default();
        *pending = pending.saturating_add(change);
    }

    /// Takes what is to be stored, in the order of the tenants, so that no two instances wait for each other's rows.
    pub fn take_pending(&mut self) -> Vec<PassChange> {
        let mut changes: Vec<PassChange> = self
            .pending
            .drain()
            .filter(|(_, change)| *change != 0)
            .map(|(tenant, change)| PassChange { tenant, change })
            .collect();
        changes.sort_by(|a, b| a.tenant.cmp(&b.tenant));
        changes
    }

    /// Gives back changes that could not be stored.
    pub fn give_back(&mut self, changes: Vec<PassChange>) {
        for PassChange { tenant, change } in changes {
            let pending = self.pending.entry(tenant).or_default();
            *pending = pending.saturating_add(change);
        }
    }

    /// Takes over a pass that is stored, which holds what other instances charged too.
    pub fn absorb(&mut self, tenant: &TenantId, stored: u64) {
        let pending = self.pending.get(tenant).copied().unwrap_or(0);
        let pass = stored.max(self.floor).saturating_add_signed(pending);
        self.known.insert(tenant.clone(), pass);
    }

    /// Takes over the floor that is stored.
    pub fn absorb_floor(&mut self, stored: u64) {
        self.floor = self.floor.max(stored);
    }

    /// Says which tenants have work now; forgets the others and raises the floor.
    pub fn observe<'a>(&mut self, with_work: impl IntoIterator<Item = &'a TenantId>) {
        let with_work: Vec<&TenantId> = with_work.into_iter().collect();
        let smallest = with_work
            .iter()
            .filter_map(|tenant| self.known.get(*tenant))
            .min();
        // Where nobody stays the highest pass stays behind: whoever comes next starts level.
        let floor = smallest.or_else(|| self.known.values().max()).copied();
        self.floor = floor.map_or(self.floor, |pass| self.floor.max(pass));
        self.known = with_work
            .into_iter()
            .map(|tenant| (tenant.clone(), self.of(tenant).max(self.floor)))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{estimates::FIRST_COST, fairness::charge};

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    /// R3.8: a new tenant starts at the smallest active pass; one that was away does not catch up.
    #[test]
    fn newcomers_start_at_the_smallest_active_pass() {
        let (acme, globex, late) = (tenant("acme"), tenant("globex"), tenant("late"));
        let mut passes = Passes::default();
        passes.observe([&acme, &globex]);
        for _ in 0..10 {
            passes.charge(&acme, FIRST_COST, 1);
            passes.charge(&globex, FIRST_COST, 2);
        }
        assert_eq!(passes.of(&acme), 2 * passes.of(&globex));
        passes.observe([&acme, &globex, &late]);
        assert_eq!(passes.of(&late), passes.of(&globex));
        // Away and back: level with the others, however little it had been charged.
        passes.observe([&acme]);
        passes.charge(&acme, FIRST_COST, 1);
        passes.observe([&acme, &late]);
        assert_eq!(passes.of(&late), passes.of(&acme));
        assert_eq!(passes.of(&acme), charge(0, 11 * FIRST_COST, 1));
    }

    #[test]
    fn an_idle_time_leaves_everybody_level() {
        let (acme, globex) = (tenant("acme"), tenant("globex"));
        let mut passes = Passes::default();
        passes.observe([&acme]);
        passes.charge(&acme, FIRST_COST, 1);
        passes.observe([]);
        assert_eq!(passes.of(&acme), passes.of(&globex));
        assert_eq!(passes.of(&acme), charge(0, FIRST_COST, 1));
    }

    /// R3.12: what was charged by estimate is settled by cost, and what is stored counts for every instance.
    #[test]
    fn estimates_are_settled_and_stored_passes_count() {
        let acme = tenant("acme");
        let (mut one, mut other) = (Passes::default(), Passes::default());
        one.observe([&acme]);
        one.charge(&acme, 1_000, 1);
        one.settle(&acme, 1_000, 34_000, 1);
        assert_eq!(one.of(&acme), charge(0, 34_000, 1));
        let changes = one.take_pending();
        assert!(one.take_pending().is_empty());
        let stored = u64::try_from(changes[0].change).unwrap();
        other.observe([&acme]);
        other.charge(&acme, 1_000, 1);
        other.absorb(&acme, stored);
        assert_eq!(other.of(&acme), charge(0, 35_000, 1));
        // A change that could not be stored is not lost.
        let pending = other.take_pending();
        other.give_back(pending.clone());
        assert_eq!(other.take_pending(), pending);
    }
}
