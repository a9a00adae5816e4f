//! What an instance remembers of configuration, and how it forgets (R17.1, O-24).
//!
//! A cache has an epoch that rises whenever a revision concerns it. The epoch is part of the key of every entry, and is
//! read *before* the value: a value that was read before a change is stored under an epoch that nobody asks for any
//! more, however late it comes. For the same reason a caller who comes after a change never waits for a load that began
//! before it.
//!
//! Every cache of configuration stands in [`crate::platform::Caches`], whose list is generated; a test walks it. Keys
//! carry the tenant, or the cache says why it is platform-wide.

use std::{
    future::Future,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::future::Cache;
use tidegate_model::ConfigKind;

use crate::Error;

/// A cache that never serves what was read before a change that this instance knows of.
pub struct VersionedCache<K, V> {
    name: &'static str,
    concerns: &'static [ConfigKind],
    epoch: AtomicU64,
    entries: Cache<(K, u64), V>,
}

impl<K, V> std::fmt::Debug for VersionedCache<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionedCache")
            .field("name", &self.name)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl<K, V> VersionedCache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// An empty cache that a revision of one of the kinds `concerns` empties.
    pub fn new(
        name: &'static str,
        concerns: &'static [ConfigKind],
        capacity: u64,
        ttl: Duration,
    ) -> Self {
        Self {
            name,
            concerns,
            epoch: AtomicU64::new(0),
            entries: Cache::builder()
                .max_capacity(capacity)
                .time_to_live(ttl)
                .build(),
        }
    }

    /// The value of a key, loaded where it is not there. Callers who miss at once share one load.
    pub async fn get_or_load<F, L>(&self, key: K, load: L) -> Result<V, Error>
    where
        F: Future<Output = Result<V, Error>> + Send,
        L: Fn() -> F,
    {
        let epoch = self.epoch.load(Ordering::Acquire);
        match self.entries.try_get_with((key, epoch), load()).await {
            Ok(value) => Ok(value),
            Err(shared) => match Arc::try_unwrap(shared) {
                Ok(own) => Err(own),
                // The error belongs to another caller; this one asks for itself.
                Err(_) => load().await,
            },
        }
    }

    /// Drops one value, where it is found to be no longer good by itself.
    pub async fn forget(&self, key: K) {
        let epoch = self.epoch.load(Ordering::Acquire);
        self.entries.invalidate(&(key, epoch)).await;
    }
}

/// What the config bus needs of a cache.
pub trait Droppable: Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The kinds of revision that empty it.
    fn concerns(&self) -> &'static [ConfigKind];
    /// Empties it, and makes loads in flight store where nobody looks.
    fn drop_all(&self);
}

impl<K, V> Droppable for VersionedCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn concerns(&self) -> &'static [ConfigKind] {
        self.concerns
    }

    fn drop_all(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.entries.invalidate_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    fn cache() -> VersionedCache<&'static str, usize> {
        VersionedCache::new("test", &[ConfigKind::Key], 10, Duration::from_mins(1))
    }

    /// O-24: a value that was read before a change never enters after it, however late its reader finishes; and nobody
    /// who comes after the change is given it.
    #[tokio::test]
    async fn a_late_reader_never_brings_the_old_value_back() {
        let cache = Arc::new(cache());
        let stored = Arc::new(AtomicUsize::new(1));
        let (read, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (cache, stored) = (Arc::clone(&cache), Arc::clone(&stored));
            let (read, go_on) = (Arc::clone(&read), Arc::clone(&go_on));
            tokio::spawn(async move {
                let load = || async {
                    let value = stored.load(Ordering::SeqCst);
                    read.notify_one();
                    go_on.notified().await;
                    Ok(value)
                };
                cache.get_or_load("acme", load).await.unwrap()
            })
        };
        read.notified().await;
        stored.store(2, Ordering::SeqCst);
        cache.drop_all();
        let fresh = || async { Ok(stored.load(Ordering::SeqCst)) };
        assert_eq!(cache.get_or_load("acme", fresh).await.unwrap(), 2);
        go_on.notify_one();
        assert_eq!(slow.await.unwrap(), 1, "its own caller may see it");
        let unreachable = || async { Ok(3) };
        assert_eq!(cache.get_or_load("acme", unreachable).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn callers_who_miss_at_once_share_one_load_and_errors_are_not_kept() {
        let cache = Arc::new(cache());
        let loads = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (cache, loads) = (Arc::clone(&cache), Arc::clone(&loads));
                tokio::spawn(async move {
                    let load = || async {
                        tokio::task::yield_now().await;
                        Ok(loads.fetch_add(1, Ordering::SeqCst))
                    };
                    cache.get_or_load("globex", load).await.unwrap()
                })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.unwrap(), 0);
        }
        let fails = || async { Err(Error::Internal { what: "test" }) };
        assert!(cache.get_or_load("other", fails).await.is_err());
        let works = || async { Ok(9) };
        assert_eq!(cache.get_or_load("other", works).await.unwrap(), 9);
    }
}
