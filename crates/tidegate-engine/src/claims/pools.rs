//! What a pool may serve.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tidegate_model::{Capability, Code, PoolId};

use crate::{Engine, Error};

/// How old the instance's knowledge of active descriptors may be where no revision says that it has changed.
const AGE_MAX: Duration = Duration::from_secs(5);

/// The active pools as last read.
#[derive(Debug, Default)]
pub(crate) struct PoolsView {
    read_at: Option<Instant>,
    /// The revision of the configuration that was served then.
    revision: i64,
    capabilities: HashMap<PoolId, Vec<Capability>>,
}

impl PoolsView {
    /// Reads anew before the next claim.
    pub(crate) fn forget(&mut self) {
        self.read_at = None;
    }
}

impl Engine {
    /// The capabilities of a pool's active descriptor, as of the revision that this instance serves. A pool that is not
    /// known is looked for at once: it may just have been published.
    pub(crate) async fn pool_capabilities(&self, pool: &PoolId) -> Result<Vec<Capability>, Error> {
        let mut view = self.claims().pools.lock().await;
        let revision = self.platform().bus.served();
        let fresh =
            view.revision == revision && view.read_at.is_some_and(|at| at.elapsed() < AGE_MAX);
        if !fresh || !view.capabilities.contains_key(pool) {
            let read_at = Instant::now();
            view.capabilities = self
                .store()
                .active_pools()
                .await?
                .into_iter()
                .map(|active| {
                    let mut capabilities = active.capabilities;
                    capabilities.sort();
                    (active.pool_id, capabilities)
                })
                .collect();
            view.read_at = Some(read_at);
            view.revision = revision;
        }
        view.capabilities.get(pool).cloned().ok_or_else(|| {
            Error::refused(
                Code::StateConflict,
                format!(
                    "pool {pool} has no active descriptor; publish one and activate it with \
                     `tidegate pool publish` and `tidegate pool activate`"
                ),
            )
        })
    }
}
