//! What the ledger counts, as this instance knows it, and which vectors follow from that.
//!
//! What is known may be as old as the configuration bus allows. A resource that is new is counted from when an instance
//! knows it; how much there is of one is read under the ledger's lock by whoever decides.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use tidegate_model::{
    PoolId,
    contracts::{ResourceName, TaskRequirements},
};
use tidegate_policy::ledger::{Part, Vector, demands};
use tidegate_store::ledger::resources::KnownResource;

use crate::{Engine, Error};

/// How old what is known may be while a removed resource waits for its last grant.
const GOING_AGE_MAX: Duration = Duration::from_millis(500);

/// The resources by name.
#[derive(Debug, Default)]
pub struct KnownResources {
    by_name: HashMap<ResourceName, KnownResource>,
    names: HashMap<i32, ResourceName>,
    /// Whether one of them was removed and goes with its last grant, of which nobody tells.
    going: bool,
    read_at: Option<Instant>,
    /// By requirement class and pool: asked for by every claim.
    of_classes: parking_lot::Mutex<HashMap<(i32, PoolId), Taken>>,
}

/// What is taken of them; or the resource that is named and not there.
pub(crate) type Taken = Result<Arc<Vector>, Missing>;

/// Why requirements have no vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// They name a resource that is not there.
    Resource(ResourceName),
    /// Their amounts fit into no counter.
    Overflow,
}

impl KnownResources {
    fn new(all: Vec<KnownResource>) -> Self {
        Self {
            going: all.iter().any(|known| known.going),
            read_at: Some(Instant::now()),
            names: all
                .iter()
                .map(|known| (known.resource, known.name.clone()))
                .collect(),
            by_name: all
                .into_iter()
                .map(|known| (known.name.clone(), known))
                .collect(),
            of_classes: parking_lot::Mutex::default(),
        }
    }

    /// What requirements take in a pool.
    pub(crate) fn vector(&self, task: &TaskRequirements, pool: &PoolId) -> Taken {
        let mut parts = Vec::new();
        for demand in demands(task, pool) {
            match self.by_name.get(&demand.resource) {
                Some(known) => parts.push(Part {
                    resource: known.resource,
                    amount: demand.amount,
                }),
                None if demand.named => return Err(Missing::Resource(demand.resource)),
                None => {}
            }
        }
        Vector::of(parts)
            .map(Arc::new)
            .map_err(|_| Missing::Overflow)
    }

    /// The same for the requirements of a class, found out once as long as the resources are these.
    pub(crate) fn vector_of_class(
        &self,
        class: i32,
        task: &TaskRequirements,
        pool: &PoolId,
    ) -> Taken {
        if self.by_name.is_empty() && task.needs.resources.is_empty() {
            return Ok(Arc::default());
        }
        let mut known = self.of_classes.lock();
        if let Some(taken) = known.get(&(class, pool.clone())) {
            return taken.clone();
        }
        let taken = self.vector(task, pool);
        known.insert((class, pool.clone()), taken.clone());
        taken
    }

    /// Whether it is to be read anew, although nothing says that it has changed.
    fn is_stale(&self) -> bool {
        self.going && self.read_at.is_none_or(|at| at.elapsed() > GOING_AGE_MAX)
    }

    /// Whether nothing has a bound.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The keys that they are stored under.
    pub(crate) fn keys(&self) -> impl Iterator<Item = i32> {
        self.names.keys().copied()
    }

    /// The name of one.
    pub(crate) fn name(&self, resource: i32) -> Option<&ResourceName> {
        self.names.get(&resource)
    }
}

impl Engine {
    /// The resources of the ledger.
    pub(crate) async fn resources(&self) -> Result<Arc<KnownResources>, Error> {
        let scope = &self.settings().execution_scope;
        let load = || async {
            let known = self.store().known_resources(scope).await?;
            Ok(Arc::new(KnownResources::new(known)))
        };
        let cache = &self.platform().caches.resources;
        let known = cache.get_or_load((), load).await?;
        if !known.is_stale() {
            return Ok(known);
        }
        cache.forget(()).await;
        cache.get_or_load((), load).await
    }

    /// The names of some resources; those that this instance does not know are read.
    pub(crate) async fn resource_names(
        &self,
        wanted: impl IntoIterator<Item = i32>,
    ) -> Result<BTreeMap<i32, ResourceName>, Error> {
        let known = self.resources().await?;
        let mut names = BTreeMap::new();
        let mut unknown = Vec::new();
        for resource in wanted {
            match known.name(resource) {
                Some(name) => drop(names.insert(resource, name.clone())),
                None => unknown.push(resource),
            }
        }
        if !unknown.is_empty() {
            names.extend(self.store().resource_names(&unknown).await?);
        }
        Ok(names)
    }
}
