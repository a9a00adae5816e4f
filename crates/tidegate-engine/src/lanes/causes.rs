//! From what is known of lanes, pools and workers to the causes that hold.

use std::{collections::HashMap, sync::Arc};

use tidegate_model::{
    PoolId, contracts::TaskRequirements, pool_reason::PoolReason, run::QuotaBucket,
};
use tidegate_policy::{
    eligibility::{Eligibility, RefusedPool},
    ledger::{Book, Shortage},
    reasons::{self, Cause, LaneFacts, PoolShort, PoolWorkers, ResourceShort},
    tiers::Tiers,
};
use tidegate_store::lanes::facts::{LaneState, PoolCapacity};

use crate::{Engine, Error, admissions::known::KnownResources, pools::PoolsKnown};

/// Pools and their workers at one moment.
#[derive(Debug)]
pub(crate) struct PoolsSeen {
    engine: Engine,
    pools: Arc<PoolsKnown>,
    capacities: HashMap<PoolId, PoolCapacity>,
    tiers: Arc<Tiers>,
    resources: Arc<KnownResources>,
    book: Book,
    fairness_on: bool,
    unroutable_grace_ms: i64,
}

impl PoolsSeen {
    /// Looks at all pools and the workers that live instances know of.
    pub(crate) async fn look(engine: &Engine) -> Result<Self, Error> {
        let settings = engine.settings();
        // An instance that has missed five heartbeats is not counted on.
        let dead_after_ms = i64::from(settings.instance_heartbeat_ms).saturating_mul(5);
        let tiers = engine.tiers().await?;
        let pools = engine.pools_now().await?;
        let capacities = engine
            .store()
            .pool_capacities(&settings.execution_scope, dead_after_ms)
            .await?;
        let resources = engine.resources().await?;
        let counters = if resources.is_empty() {
            Vec::new()
        } else {
            let all: Vec<i32> = resources.keys().collect();
            let scope = &settings.execution_scope;
            engine.store().look_at_ledger(scope, &all).await?.1
        };
        Ok(Self {
            engine: engine.clone(),
            pools,
            capacities: capacities
                .into_iter()
                .map(|capacity| (capacity.pool.clone(), capacity))
                .collect(),
            tiers,
            resources,
            book: Book::new(counters),
            fairness_on: settings.run_fairness,
            unroutable_grace_ms: i64::from(settings.unroutable_grace_ms),
        })
    }

    /// Every cause that holds for each of some lanes, ranked; in their order.
    pub(crate) async fn causes(&self, states: &[LaneState]) -> Result<Vec<Vec<Cause>>, Error> {
        let classes: Vec<i32> = states.iter().map(|state| state.lane.class).collect();
        self.engine.requirements(&classes).await?;
        Ok(states.iter().map(|state| self.causes_of(state)).collect())
    }

    /// What the eligible pools are short of, where each of them is short of something. A pool that has less in all than a
    /// run takes is not eligible.
    fn weigh(
        &self,
        class: i32,
        task: &TaskRequirements,
        mut pools: Eligibility,
    ) -> (Eligibility, Vec<PoolShort>) {
        let mut short = Vec::new();
        let mut fits = false;
        let mut too_small = Vec::new();
        for pool in &pools.eligible {
            let Ok(vector) = self.resources.vector_of_class(class, task, pool) else {
                too_small.push(pool.clone());
                continue;
            };
            let lacks = self.book.short(&vector, Some(class));
            if lacks.iter().any(Shortage::is_for_ever) {
                too_small.push(pool.clone());
            } else if lacks.is_empty() {
                fits = true;
            } else {
                short.push(PoolShort {
                    pool: pool.clone(),
                    short: lacks.iter().filter_map(|one| self.named(one)).collect(),
                });
            }
        }
        pools.eligible.retain(|pool| !too_small.contains(pool));
        pools
            .refused
            .extend(too_small.into_iter().map(|pool| RefusedPool {
                pool,
                reason: PoolReason::CapacityExceeded,
                also: Vec::new(),
            }));
        if fits {
            short.clear();
        }
        (pools, short)
    }

    fn named(&self, short: &Shortage) -> Option<ResourceShort> {
        Some(ResourceShort {
            resource: self.resources.name(short.resource)?.clone(),
            needed: short.needed,
            free: short.free,
            capacity: short.capacity,
        })
    }

    fn causes_of(&self, state: &LaneState) -> Vec<Cause> {
        let class = state.lane.class;
        let task = self.engine.requirements_of(class);
        let pools = self.pools.sort_class(class, task.as_deref());
        let (pools, short) = match &task {
            Some(task) => self.weigh(class, task, Eligibility::clone(&pools)),
            None => (Eligibility::clone(&pools), Vec::new()),
        };
        let workers: Vec<&PoolCapacity> = pools
            .eligible
            .iter()
            .filter_map(|pool| self.capacities.get(pool))
            .collect();
        let background = state.of_background || state.lane.bucket == QuotaBucket::Background;
        let background_served = !background
            || workers
                .iter()
                .any(|pool| pool.background_slots.is_none_or(|slots| slots > 0));
        let workers = workers
            .into_iter()
            .map(|capacity| PoolWorkers {
                pool: capacity.pool.clone(),
                slots: capacity.slots,
                busy: capacity.busy,
            })
            .collect();
        reasons::lane(&LaneFacts {
            tenant: state.lane.tenant.clone(),
            tenant_active: state.tenant_active,
            bucket: state.lane.bucket,
            capability: state.capability.clone(),
            running: state.running,
            cap: self
                .tiers
                .of(&state.lane.tenant)
                .caps()
                .cap(state.lane.bucket),
            fairness_on: self.fairness_on,
            pools,
            workers,
            background_served,
            short,
            unroutable_grace_ms: self.unroutable_grace_ms,
        })
    }
}
