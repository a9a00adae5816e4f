//! The generation of fences (R4.7): which history of the database this is.
//!
//! Looked at before the first claim, by each new connection, and every second. Raising it twice would cost running
//! attempts their leases, raising it late would let two histories give the same fence; so it is one compare-and-set on
//! the identity that the database last showed.

use std::time::Duration;

use tidegate_store::cluster::Generation;
use tokio_util::sync::CancellationToken;

use crate::{Engine, Error};

/// How often the identity is looked at.
const EVERY: Duration = Duration::from_secs(1);

impl Engine {
    /// The generation of fences that this instance last saw in force; 0 before the first look.
    pub fn generation(&self) -> i32 {
        self.platform()
            .generation
            .lock()
            .as_ref()
            .map_or(0, |generation| generation.number)
    }

    /// Looks at the database's identity and raises the generation where it comes from another history.
    pub async fn observe_generation(&self) -> Result<Generation, Error> {
        let seen = self.platform().generation.lock().clone();
        let now = self
            .store()
            .fleet()
            .observe_generation(seen.as_ref())
            .await?;
        let rose = seen.is_some_and(|seen| seen.number < now.number);
        if rose || now.raised {
            metrics::counter!("tidegate_generation_rises_total").increment(1);
            tracing::warn!(
                generation = now.number,
                cause = now.cause,
                "the database comes from another history: leases of earlier generations are refused; \
                 `tidegate recover` lists what dangles"
            );
            // What is in memory may be of the lost history.
            self.platform().caches.drop_for(None);
            self.platform().bus.look_now();
        }
        metrics::gauge!("tidegate_generation").set(f64::from(now.number));
        *self.platform().generation.lock() = Some(now.clone());
        Ok(now)
    }
}

/// Looks every second until stopped.
pub async fn run(engine: Engine, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = engine.observe_generation().await {
            tracing::debug!(%error, "the identity of the database cannot be read");
        }
    }
}
