//! What an instance keeps of the platform: keys for secrets, configuration in memory, the generation of fences, and how
//! well it hears of changes.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tidegate_model::{ConfigKind, KeyId};
use tidegate_policy::tiers::Tiers;
use tidegate_store::cluster::Generation;

use crate::{
    admissions::known::KnownResources,
    auth::CachedKey,
    cache::{Droppable, VersionedCache},
    catalog::resolved::ResolvedCatalog,
    config_bus::ConfigBus,
    grants::KeySet,
    ready::Probed,
    redis_link::RedisState,
    secrets::Keyring,
    settings::Settings,
    trouble::Trouble,
};

/// The most keys that are remembered.
const KEYS_MAX: u64 = 100_000;

/// Defines the caches of configuration, with their list.
macro_rules! caches {
    ($($(#[$meta:meta])* $name:ident: $key:ty => $value:ty, emptied by [$($kind:ident),+], at most $most:expr;)+) => {
        /// Every cache of configuration of an instance.
        #[derive(Debug)]
        pub struct Caches { $($(#[$meta])* pub(crate) $name: VersionedCache<$key, $value>,)+ }

        impl Caches {
            fn new(ttl: Duration) -> Self {
                Self { $($name: VersionedCache::new(
                    stringify!($name), &[$(ConfigKind::$kind),+], $most, ttl),)+ }
            }

            /// Every cache; generated with them, so that none can be missing.
            pub fn list(&self) -> Vec<&dyn Droppable> {
                vec![$(&self.$name),+]
            }
        }
    };
}

caches! {
    /// API keys by the hash of their secret. Platform-wide: the secret is what names the tenant.
    keys: [u8; 32] => Arc<CachedKey>, emptied by [Key, Tenant], at most KEYS_MAX;
    /// The opened catalogue. Platform-wide: it belongs to the operator; tools are cut to a tenant when they are offered.
    catalog: () => Arc<ResolvedCatalog>, emptied by [Provider, Model, ToolServer, Cluster], at most 1;
    /// Tiers and overrides of all tenants. Platform-wide: each look-up names its tenant.
    tiers: () => Arc<Tiers>, emptied by [Tier, Tenant], at most 1;
    /// What the ledger counts. Platform-wide: resources belong to the operator, those of a tenant are named after it.
    resources: () => Arc<KnownResources>, emptied by [Resource], at most 1;
    /// The keys that sign grants, opened. Platform-wide: a grant names its tenant itself.
    grant_keys: () => Arc<KeySet>, emptied by [GrantKey, Cluster], at most 1;
}

impl Caches {
    /// Empties what a revision concerns; everything where its kind is not known here.
    pub(crate) fn drop_for(&self, kind: Option<ConfigKind>) {
        for cache in self.list() {
            if kind.is_none_or(|kind| cache.concerns().contains(&kind)) {
                cache.drop_all();
            }
        }
    }
}

/// The platform's side of an instance.
#[derive(Debug)]
pub struct Platform {
    pub(crate) keyring: Keyring,
    /// The key that secrets were sealed with at the last heartbeat.
    pub(crate) key_in_force: parking_lot::Mutex<Option<String>>,
    pub(crate) caches: Caches,
    pub(crate) bus: ConfigBus,
    pub(crate) generation: parking_lot::Mutex<Option<Generation>>,
    /// Keys that were used since the last time that was noted.
    pub(crate) used_keys: parking_lot::Mutex<HashSet<KeyId>>,
    pub(crate) clock_skew_ms: AtomicI64,
    pub(crate) redis: parking_lot::Mutex<RedisState>,
    pub(crate) probed: tokio::sync::Mutex<Probed>,
    /// Rows of the catalogue whose secret cannot be opened, as the log was told.
    pub(crate) unreadable: parking_lot::Mutex<Trouble>,
}

impl Platform {
    /// The platform's side of an instance that has read nothing yet.
    pub(crate) fn new(settings: &Settings, keyring: Keyring) -> Self {
        Self {
            keyring,
            key_in_force: parking_lot::Mutex::default(),
            caches: Caches::new(Duration::from_millis(u64::from(settings.cache_ttl_ms))),
            bus: ConfigBus::default(),
            generation: parking_lot::Mutex::default(),
            used_keys: parking_lot::Mutex::default(),
            clock_skew_ms: AtomicI64::new(0),
            redis: parking_lot::Mutex::new(RedisState::of(settings)),
            probed: tokio::sync::Mutex::default(),
            unreadable: parking_lot::Mutex::new(Trouble::new("opening a sealed secret")),
        }
    }

    /// How far this machine's wall clock is ahead of the database's.
    pub fn clock_skew_ms(&self) -> i64 {
        self.clock_skew_ms.load(Ordering::Relaxed)
    }

    /// Every cache of configuration.
    pub const fn caches(&self) -> &Caches {
        &self.caches
    }

    /// How this instance hears of changes.
    pub const fn bus(&self) -> &ConfigBus {
        &self.bus
    }
}
