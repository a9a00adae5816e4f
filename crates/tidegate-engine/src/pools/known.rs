//! The pools as this instance knows them, and which requirements each may serve (R5.4, R6.3).
//!
//! One reading serves claims, displays and submissions until the configuration has changed or it is old. What it says
//! may delay and never grants: the claim statement asks again which epoch is in force, and whoever would refuse
//! because of it reads anew first. Evaluations are kept per requirement class with the reading, so that equal
//! requirements share them for as long as descriptors and policy generation are these.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tidegate_model::{
    Code, PoolId,
    contracts::{CapabilityDescriptor, Needs, TaskRequirements},
    pool_reason::PoolReason,
};
use tidegate_policy::eligibility::{self, Eligibility, Moment, PoolOffer};
use tidegate_store::pools::PoolOffers;

use crate::{Engine, Error};

/// How old a reading may be where no revision says that it has changed.
const AGE_MAX: Duration = Duration::from_secs(5);

/// The pools as last read.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    known: tokio::sync::Mutex<Option<Arc<PoolsKnown>>>,
    /// Whether this instance has changed them itself since.
    stale: AtomicBool,
}

impl Pools {
    /// Reads anew before they are used again.
    pub(crate) fn forget(&self) {
        self.stale.store(true, Ordering::Release);
    }
}

/// A reading of all pools.
#[derive(Debug)]
pub(crate) struct PoolsKnown {
    evaluated: Arc<Evaluated>,
    /// As it was when this was read.
    moment: Moment,
    read_at: Instant,
    /// The revision of the configuration that was served then.
    revision: i64,
}

/// Pools as they are, with what was found out about them; readings that say the same share it.
#[derive(Debug, Default)]
struct Evaluated {
    offers: Vec<PoolOffer>,
    sorted: parking_lot::Mutex<HashMap<i32, Arc<Eligibility>>>,
    served: parking_lot::Mutex<HashMap<PoolId, Arc<Served>>>,
}

impl PoolsKnown {
    fn new(read: PoolOffers, read_at: Instant, revision: i64, before: Option<&Self>) -> Self {
        let same = before.filter(|before| {
            before.moment.policy_generation == read.moment.policy_generation
                && before.evaluated.offers == read.offers
        });
        Self {
            evaluated: same.map_or_else(
                || {
                    Arc::new(Evaluated {
                        offers: read.offers,
                        ..Evaluated::default()
                    })
                },
                |before| Arc::clone(&before.evaluated),
            ),
            moment: read.moment,
            read_at,
            revision,
        }
    }

    /// The generation in force and the time by the database's clock, counted on from the reading.
    pub(crate) fn moment(&self) -> Moment {
        let since = chrono::Duration::from_std(self.read_at.elapsed()).unwrap_or_default();
        Moment {
            now: self.moment.now + since,
            ..self.moment
        }
    }

    /// All pools, sorted by whether they may serve some requirements.
    pub(crate) fn sort(&self, task: &TaskRequirements) -> Eligibility {
        eligibility::sort(&self.evaluated.offers, task, self.moment())
    }

    /// The same for the requirements of a class, evaluated once as long as the answer holds. Those of a contract that this
    /// release does not know are for no pool.
    pub(crate) fn sort_class(
        &self,
        class: i32,
        task: Option<&TaskRequirements>,
    ) -> Arc<Eligibility> {
        let Some(task) = task else {
            return Arc::default();
        };
        let now = self.moment().now;
        if let Some(sorted) = self.evaluated.sorted.lock().get(&class)
            && sorted.valid_until.is_none_or(|until| now < until)
        {
            return Arc::clone(sorted);
        }
        let sorted = Arc::new(self.sort(task));
        self.evaluated
            .sorted
            .lock()
            .insert(class, Arc::clone(&sorted));
        sorted
    }

    /// What a pool may serve; the reason where that is nothing, `None` inside where the pool is not known.
    pub(crate) fn served(&self, pool: &PoolId) -> Result<Arc<Served>, Option<PoolReason>> {
        let offers = &self.evaluated.offers;
        let offer = offers
            .iter()
            .find(|offer| offer.pool == *pool)
            .ok_or(None)?;
        let descriptor = eligibility::in_force(offer)?;
        if let Some(reason) = eligibility::closed(offer, self.moment()).next() {
            return Err(Some(reason));
        }
        let mut all = self.evaluated.served.lock();
        let served = all.entry(pool.clone()).or_insert_with(|| {
            Arc::new(Served {
                descriptor: Arc::clone(descriptor),
                verdicts: parking_lot::RwLock::default(),
            })
        });
        Ok(Arc::clone(served))
    }

    fn is_fresh(&self, revision: i64) -> bool {
        self.revision == revision && self.read_at.elapsed() < AGE_MAX
    }
}

/// Which requirement classes a pool may serve while its descriptor is open.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) descriptor: Arc<CapabilityDescriptor>,
    /// Replaced whole where something new is found out, so that a claim looks at thousands of lanes without a lock.
    verdicts: parking_lot::RwLock<Arc<HashMap<i32, bool>>>,
}

impl Served {
    /// The epoch in force.
    pub(crate) fn epoch(&self) -> i64 {
        self.descriptor.descriptor_epoch
    }

    /// Whether it may serve the classes of which that has been found out.
    pub(crate) fn verdicts(&self) -> Arc<HashMap<i32, bool>> {
        Arc::clone(&self.verdicts.read())
    }

    /// Finds out whether it may serve some classes.
    pub(crate) async fn learn(&self, engine: &Engine, classes: &[i32]) -> Result<(), Error> {
        engine.requirements(classes).await?;
        let mut verdicts = self.verdicts.write();
        let known = Arc::make_mut(&mut verdicts);
        for class in classes {
            let task = engine.requirements_of(*class);
            let serves = task
                .is_some_and(|task| eligibility::unmet(&self.descriptor, &task).next().is_none());
            known.insert(*class, serves);
        }
        Ok(())
    }
}

impl Engine {
    /// The pools as of the revision that this instance serves.
    pub(crate) async fn pools(&self) -> Result<Arc<PoolsKnown>, Error> {
        let mut known = self.pools_view().known.lock().await;
        let revision = self.platform().bus.served();
        let stale = self.pools_view().stale.load(Ordering::Acquire);
        if let Some(pools) = known
            .as_ref()
            .filter(|pools| !stale && pools.is_fresh(revision))
        {
            return Ok(Arc::clone(pools));
        }
        self.read_pools(&mut known).await
    }

    /// The pools as they are now, for who would refuse because of them.
    pub(crate) async fn pools_now(&self) -> Result<Arc<PoolsKnown>, Error> {
        let mut known = self.pools_view().known.lock().await;
        self.read_pools(&mut known).await
    }

    async fn read_pools(
        &self,
        known: &mut Option<Arc<PoolsKnown>>,
    ) -> Result<Arc<PoolsKnown>, Error> {
        // Before reading: what changes meanwhile makes it stale again.
        self.pools_view().stale.store(false, Ordering::Release);
        let revision = self.platform().bus.served();
        let read_at = Instant::now();
        let scope = &self.settings().execution_scope;
        let read = self.store().pool_offers(scope).await?;
        let pools = Arc::new(PoolsKnown::new(read, read_at, revision, known.as_deref()));
        *known = Some(Arc::clone(&pools));
        Ok(pools)
    }

    /// Which pools may serve some requirements. That none may is said of the pools as they are now.
    pub(crate) async fn eligible(&self, task: &TaskRequirements) -> Result<Eligibility, Error> {
        let sorted = self.pools().await?.sort(task);
        if sorted.is_satisfiable() {
            return Ok(sorted);
        }
        Ok(self.pools_now().await?.sort(task))
    }

    /// What a pool may serve. That it is nothing is said of the pool as it is now: it may just have been published.
    pub(crate) async fn served_by(&self, pool: &PoolId) -> Result<Arc<Served>, Error> {
        if let Ok(served) = self.pools().await?.served(pool) {
            return Ok(served);
        }
        self.pools_now().await?.served(pool).map_err(|reason| {
            let said = match reason {
                None | Some(PoolReason::DescriptorEpochStale) => format!(
                    "pool {pool} has no active descriptor; publish one and activate it with `tidegate pool publish` and \
                     `tidegate pool activate`"
                ),
                Some(reason) => format!(
                    "pool {pool} serves nothing: {}; {} (under a higher epoch, with `tidegate pool publish FILE \
                     --activate`)",
                    reason.as_str(),
                    eligibility::remedy(reason)
                ),
            };
            Error::refused(Code::PoolClosed, said)
        })
    }

    /// The requirements of some classes, remembered: they never change.
    pub(crate) async fn requirements(&self, classes: &[i32]) -> Result<(), Error> {
        let unknown: Vec<i32> = classes
            .iter()
            .copied()
            .filter(|class| self.tasks().get(class).is_none())
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        for (class, task) in self.store().fleet().requirements(&unknown).await? {
            self.tasks().insert(class, task.map(Arc::new));
        }
        Ok(())
    }

    /// What runs of a class need besides their capability, as far as it is remembered; nothing where they need nothing.
    pub(crate) fn needs_of(&self, class: i32) -> Option<Needs> {
        let task = self.requirements_of(class)?;
        (!task.needs.is_empty()).then(|| task.needs.clone())
    }

    /// The requirements of a class that [`Self::requirements`] was asked for; `None` for those that this release cannot read.
    pub(crate) fn requirements_of(&self, class: i32) -> Option<Arc<TaskRequirements>> {
        self.tasks().get(&class).flatten()
    }
}
