//! Wake-ups: at once inside this instance, debounced and outside every hot transaction to the others.

use std::time::Duration;

use tidegate_model::PoolId;
use tokio_util::sync::CancellationToken;

use super::Claims;
use crate::Engine;

/// The channel of the hints. They carry nothing: a claim looks for itself.
const CHANNEL: &str = "tidegate_work";
/// Hints of one instance are at least this far apart.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// How long to wait before listening again after the connection broke.
const RELISTEN: Duration = Duration::from_secs(1);

impl Claims {
    /// Wakes the claims that wait on this instance.
    pub fn wake(&self) {
        self.woken.notify_waiters();
    }

    /// Resolves at the next wake-up. Create it before looking for work, or one is missed.
    pub(crate) fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.woken.notified()
    }

    /// Counts a claim as waiting until the guard is dropped.
    pub(crate) fn wait_for(&self, pool: &PoolId, slots: u32) -> Waiting<'_> {
        *self.waiting.lock().entry(pool.clone()).or_default() += slots;
        Waiting {
            claims: self,
            pool: pool.clone(),
            slots,
        }
    }
}

/// A claim that waits.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    claims: &'a Claims,
    pool: PoolId,
    slots: u32,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.claims.waiting.lock();
        if let Some(slots) = waiting.get_mut(&self.pool) {
            *slots = slots.saturating_sub(self.slots);
            if *slots == 0 {
                waiting.remove(&self.pool);
            }
        }
    }
}

impl Engine {
    /// Says that something may have become runnable: wakes this instance's claims and hints to the others.
    pub(crate) async fn work_changed(&self) {
        self.claims().mark_stale().await;
        self.claims().wake();
        self.claims().hints.notify_one();
    }
}

/// Sends this instance's hints, debounced. A failed one costs the others a poll, so it is only counted.
pub async fn publish(engine: Engine, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = engine.claims().hints.notified() => {}
        }
        if engine.store().notify(CHANNEL, "").await.is_err() {
            metrics::counter!("tidegate_hints_failed_total").increment(1);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(DEBOUNCE) => {}
        }
    }
}

/// Listens to the hints of all instances.
pub async fn listen(engine: Engine, stop: CancellationToken) {
    loop {
        let heard = tokio::select! {
            () = stop.cancelled() => return,
            heard = hear(&engine) => heard,
        };
        if let Err(error) = heard {
            tracing::debug!(%error, "work hints are not heard; claims poll until they are");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RELISTEN) => {}
        }
    }
}

async fn hear(engine: &Engine) -> Result<(), tidegate_store::Error> {
    let mut hints = engine.store().listen(&[CHANNEL]).await?;
    loop {
        hints.next().await?;
        engine.claims().mark_stale().await;
        engine.claims().wake();
    }
}
