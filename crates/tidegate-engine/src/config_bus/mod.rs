//! How an instance learns of administrative writes (R17).
//!
//! The log of revisions is the truth and is polled; a notification is only a hint to look at once. After each look the
//! caches that a revision concerns are empty, and only then is the revision called served. A listener that is lost or
//! hears nothing listens again *before* everything is dropped and read anew, so that no change falls into the gap.

mod follow;
mod listen;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tidegate_model::ConfigKind;
use tidegate_store::Written;
use tokio::sync::{Notify, watch};

use crate::Engine;

pub(crate) use follow::dead_after_ms;
pub use follow::run;
pub use listen::run as listen;

/// The channel of the hints.
pub const CHANNEL: &str = "aida_config_changed";
/// The longest that a hint may hold up the answer to an administrative write.
const PUBLISH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

/// What an instance knows of the log.
#[derive(Debug, Default)]
pub struct ConfigBus {
    served: AtomicI64,
    listening: AtomicBool,
    look: Notify,
    changed: watch::Sender<i64>,
    applying: parking_lot::Mutex<Vec<watch::Receiver<i64>>>,
}

impl ConfigBus {
    /// The revision that this instance serves: nothing older is in its memory.
    pub fn served(&self) -> i64 {
        self.served.load(Ordering::Acquire)
    }

    /// Whether notifications were seen to arrive lately (O-23).
    pub fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    /// The revision served, as it rises; for whoever keeps something built from the configuration.
    pub fn subscribe(&self) -> watch::Receiver<i64> {
        self.changed.subscribe()
    }

    /// Counts in somebody who keeps something built from the configuration and tells the revision up to which it has
    /// done so: until then a revision is not in force here.
    pub fn wait_for(&self, applied: watch::Receiver<i64>) {
        self.applying.lock().push(applied);
    }

    /// The revision that is in force on this instance: served from memory, and applied by everybody who was counted in.
    pub fn in_force(&self) -> i64 {
        let mut applying = self.applying.lock();
        // Whoever has stopped holds nothing back.
        applying.retain(|applied| applied.has_changed().is_ok());
        applying
            .iter()
            .map(|applied| *applied.borrow())
            .fold(self.served(), i64::min)
            .max(0)
    }

    /// Has the log looked at without waiting for the next poll.
    pub(crate) fn look_now(&self) {
        self.look.notify_one();
    }

    pub(crate) fn serve(&self, revision: i64) {
        self.served.store(revision, Ordering::Release);
        self.changed.send_replace(revision);
    }

    fn set_listening(&self, listening: bool) -> bool {
        metrics::gauge!("tidegate_config_listening").set(if listening { 1.0 } else { 0.0 });
        self.listening.swap(listening, Ordering::AcqRel)
    }
}

impl Engine {
    /// After the commit of an administrative write: forgets what it concerns here, and tells the others. The write
    /// stands whatever comes of that; who misses the hint finds the revision by polling.
    pub(crate) async fn written<T>(&self, kind: ConfigKind, written: Written<T>) -> T {
        if let Some(revision) = written.revision {
            self.platform().caches.drop_for(Some(kind));
            self.pools_view().forget();
            self.platform().bus.look_now();
            publish(self.store(), revision).await;
        }
        written.value
    }
}

/// Sends the hint on its own; failing to only warns (R17.1).
pub async fn publish(store: &tidegate_store::Store, revision: i64) {
    let sent = tokio::time::timeout(PUBLISH_TIMEOUT, store.notify_revision(revision)).await;
    let cause = match sent {
        Ok(Ok(())) => return,
        Ok(Err(error)) => crate::trouble::chain(&error),
        Err(_) => "no answer in time".to_owned(),
    };
    metrics::counter!("tidegate_config_publish_failures_total").increment(1);
    tracing::warn!(
        revision,
        cause,
        "a config change was not announced; it is committed, and other instances find it by polling"
    );
}
