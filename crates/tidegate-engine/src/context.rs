//! What every use case gets: settings, database, and what this instance remembers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use quick_cache::sync::Cache;
use tidegate_grants::Verified;
use tidegate_model::{
    Capability, InstanceId, RunId, TenantId,
    contracts::{Needs, TaskRequirements},
};
use tidegate_store::{
    Store,
    attempts::{
        LeaseKey,
        close::{CloseReport, Closed},
    },
    ledger::batch::{Answer, Ask},
    runs::{Submission, Submitted},
};

use crate::{
    claims::Claims, combine::Combiner, events::EventHub, platform::Platform, pools::Pools,
    secrets::Keyring, settings::Settings,
};

/// The most leases whose place is remembered.
const LEASE_KEYS_MAX: usize = 200_000;
/// The most leased runs of trees that are remembered.
const IN_TREES_MAX: usize = 50_000;
/// The most requirement classes that are remembered.
const CLASSES_MAX: usize = 100_000;
/// The most grants that are remembered as verified: each takes 15 kB at most, and a tenth of that usually.
const VERIFIED_MAX: usize = 4_000;
/// The most submissions of one statement.
const SUBMISSIONS_MAX: usize = 500;
/// The most attempts that one transaction closes.
const ENDINGS_MAX: usize = 200;

/// The most calls that one transaction over the ledger decides.
const LEDGER_MAX: usize = 500;

/// What makes a requirement class: a tenant's requirements, and whether a background run is the root of the tree (R3.6).
pub(crate) type ClassKey = (TenantId, Capability, Needs, bool);

/// What an engine is made of.
#[derive(Debug)]
pub struct EngineParts {
    /// The settings of this process.
    pub settings: Arc<Settings>,
    /// The database.
    pub store: Store,
    /// This process.
    pub instance: InstanceId,
    /// Keys the digests of bodies, the same for all instances.
    pub digest_key: [u8; 32],
    /// Opens secrets at rest.
    pub keyring: Keyring,
}

/// The use cases' context; a cheap handle.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: EngineParts,
    claims: Claims,
    platform: Platform,
    // These are asked several times for each run and hold what never changes, so a plain cache is enough; what is loaded
    // and emptied has [`crate::cache`].
    /// Where leases stand: immutable while they are open. Keyed by run, which is unique over all tenants.
    lease_keys: Cache<RunId, LeaseKey>,
    /// Leased runs with a parent or children, as far as this instance has heard: their ends ride in no shared batch.
    in_trees: Cache<RunId, ()>,
    /// Classes by tenant, capability, needs and descent from background: never change.
    classes: Cache<ClassKey, i32>,
    /// The requirements of classes; inside, `None` for those that this release cannot read.
    tasks: Cache<i32, Option<Arc<TaskRequirements>>>,
    pools: Pools,
    events: EventHub,
    /// Grants whose signatures were found right, by the digest of the token, and what they say: neither changes. What they
    /// allow is asked anew each time.
    verified_tokens: Cache<[u8; 32], Arc<Verified>>,
    submissions: Combiner<Submission, Submitted>,
    endings: Combiner<CloseReport, Option<Closed>>,
    ledger: Combiner<Ask, Answer>,
    draining: AtomicBool,
}

impl Engine {
    /// Builds the context; nothing is read or started.
    pub fn new(parts: EngineParts) -> Self {
        let view_age = Duration::from_millis(u64::from(parts.settings.view_age_ms));
        Self(Arc::new(Inner {
            claims: Claims::new(view_age),
            platform: Platform::new(&parts.settings, parts.keyring.clone()),
            lease_keys: Cache::new(LEASE_KEYS_MAX),
            in_trees: Cache::new(IN_TREES_MAX),
            classes: Cache::new(CLASSES_MAX),
            tasks: Cache::new(CLASSES_MAX),
            pools: Pools::default(),
            events: EventHub::new(&parts.settings),
            verified_tokens: Cache::new(VERIFIED_MAX),
            submissions: Combiner::new(SUBMISSIONS_MAX),
            endings: Combiner::new(ENDINGS_MAX),
            ledger: Combiner::new(LEDGER_MAX),
            draining: AtomicBool::new(false),
            parts,
        }))
    }

    /// The settings of this process.
    pub fn settings(&self) -> &Settings {
        &self.0.parts.settings
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.0.parts.store
    }

    /// This process.
    pub fn instance(&self) -> InstanceId {
        self.0.parts.instance
    }

    /// The key of body digests.
    pub(crate) fn digest_key(&self) -> &[u8; 32] {
        &self.0.parts.digest_key
    }

    /// The view of lanes and the wake-ups of claims.
    pub fn claims(&self) -> &Claims {
        &self.0.claims
    }

    /// The streams of runs' events on this instance.
    pub fn events(&self) -> &EventHub {
        &self.0.events
    }

    /// Grants whose signatures were found right.
    pub(crate) fn verified_tokens(&self) -> &Cache<[u8; 32], Arc<Verified>> {
        &self.0.verified_tokens
    }

    /// What this instance keeps of the platform.
    pub fn platform(&self) -> &Platform {
        &self.0.platform
    }

    pub(crate) fn lease_keys(&self) -> &Cache<RunId, LeaseKey> {
        &self.0.lease_keys
    }

    pub(crate) fn in_trees(&self) -> &Cache<RunId, ()> {
        &self.0.in_trees
    }

    pub(crate) fn classes(&self) -> &Cache<ClassKey, i32> {
        &self.0.classes
    }

    pub(crate) fn tasks(&self) -> &Cache<i32, Option<Arc<TaskRequirements>>> {
        &self.0.tasks
    }

    /// The pools as this instance knows them.
    pub(crate) fn pools_view(&self) -> &Pools {
        &self.0.pools
    }

    /// Gathers runs that are submitted at the same time.
    pub(crate) fn submissions(&self) -> &Combiner<Submission, Submitted> {
        &self.0.submissions
    }

    /// Gathers attempts that their holders end at the same time.
    pub(crate) fn endings(&self) -> &Combiner<CloseReport, Option<Closed>> {
        &self.0.endings
    }

    /// Gathers calls over the ledger.
    pub(crate) fn ledger(&self) -> &Combiner<Ask, Answer> {
        &self.0.ledger
    }

    /// Whether this process takes no new work (R1.7).
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }

    /// Takes no new work from now on; claims that wait return empty.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Release);
        self.claims().wake_all();
    }

    /// The greatest age in the queue, as the store takes it.
    pub(crate) fn queue_max_age_ms(&self) -> i64 {
        i64::from(self.settings().queue_max_age_ms)
    }
}
