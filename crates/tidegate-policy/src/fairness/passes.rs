//! The passes of the tenants that have work, as one claimer keeps them (R3.3, R3.8, R3.12).

use std::collections::HashMap;

use tidegate_model::TenantId;

use super::charge;

/// What each tenant has been charged. A tenant that comes up starts at the smallest pass of those that have work, so
/// that it neither waits for what others had before nor may catch up on a time in which it asked for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passes {
    passes: HashMap<TenantId, u64>,
    /// The smallest pass of the tenants with work; never falls.
    floor: u64,
}

impl Passes {
    /// The pass of a tenant.
    pub fn of(&self, tenant: &TenantId) -> u64 {
        self.passes.get(tenant).copied().unwrap_or(self.floor)
    }

    /// Charges a tenant for what it was given.
    pub fn charge(&mut self, tenant: &TenantId, cost: u64, weight: u32) {
        let pass = charge(self.of(tenant), cost, weight);
        self.passes.insert(tenant.clone(), pass);
    }

    /// Says which tenants have work now; forgets the others and raises the floor.
    pub fn observe<'a>(&mut self, with_work: impl IntoIterator<Item = &'a TenantId>) {
        let with_work: Vec<&TenantId> = with_work.into_iter().collect();
        let smallest = with_work
            .iter()
            .filter_map(|tenant| self.passes.get(*tenant))
            .min();
        // Where nobody stays the highest pass stays behind: whoever comes next starts level.
        let floor = smallest.or_else(|| self.passes.values().max()).copied();
        self.floor = floor.map_or(self.floor, |pass| self.floor.max(pass));
        self.passes = with_work
            .into_iter()
            .map(|tenant| (tenant.clone(), self.of(tenant)))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fairness::CLAIM_COST;

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
            passes.charge(&acme, CLAIM_COST, 1);
            passes.charge(&globex, CLAIM_COST, 2);
        }
        assert_eq!(passes.of(&acme), 2 * passes.of(&globex));
        passes.observe([&acme, &globex, &late]);
        assert_eq!(passes.of(&late), passes.of(&globex));
        // Away and back: level with the others, however little it had been charged.
        passes.observe([&acme]);
        passes.charge(&acme, CLAIM_COST, 1);
        passes.observe([&acme, &late]);
        assert_eq!(passes.of(&late), passes.of(&acme));
        assert_eq!(passes.of(&acme), charge(0, 11 * CLAIM_COST, 1));
    }

    #[test]
    fn an_idle_time_leaves_everybody_level() {
        let (acme, globex) = (tenant("acme"), tenant("globex"));
        let mut passes = Passes::default();
        passes.observe([&acme]);
        passes.charge(&acme, CLAIM_COST, 1);
        passes.observe([]);
        assert_eq!(passes.of(&acme), passes.of(&globex));
        assert_eq!(passes.of(&acme), charge(0, CLAIM_COST, 1));
    }
}
