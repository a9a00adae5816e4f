//! From what a worker names (run and fence) to the lease that is checked.

use std::collections::HashMap;

use tidegate_model::{Code, RunId, api::LeaseRef};
use tidegate_store::attempts::{HeldLease, LeaseKey};

use crate::{Engine, Error, Principal};

/// The refusal of a write whose fence is not that of an open lease.
pub(crate) fn lease_lost() -> Error {
    metrics::counter!("tidegate_fenced_writes_total").increment(1);
    Error::refused(
        Code::LeaseLost,
        "this lease has ended or was never held by this pool; stop the attempt and write nothing more",
    )
}

impl Engine {
    /// Where the leases of some runs stand; runs without an open lease are left out, and so are those of other pools.
    pub(crate) async fn held(
        &self,
        principal: &Principal,
        leases: &[LeaseRef],
    ) -> Result<HashMap<RunId, HeldLease>, Error> {
        let pool = principal.require_pool()?;
        let mut keys: HashMap<RunId, LeaseKey> = HashMap::with_capacity(leases.len());
        let mut unknown = Vec::new();
        for lease in leases {
            match self.lease_keys().get(&lease.run_id) {
                Some(key) => {
                    keys.insert(lease.run_id, key);
                }
                None => unknown.push(lease.run_id),
            }
        }
        if !unknown.is_empty() {
            for key in self.store().fleet().locate_leases(&unknown).await? {
                self.remember(key.clone());
                keys.insert(key.run_id, key);
            }
        }
        Ok(leases
            .iter()
            .filter_map(|lease| {
                let key = keys.get(&lease.run_id).filter(|key| key.pool == *pool)?;
                Some((
                    lease.run_id,
                    HeldLease {
                        key: key.clone(),
                        fence: lease.fence,
                    },
                ))
            })
            .collect())
    }

    /// The one lease that a write names.
    pub(crate) async fn held_one(
        &self,
        principal: &Principal,
        lease: LeaseRef,
    ) -> Result<HeldLease, Error> {
        if let Some(key) = self.lease_keys().get(&lease.run_id) {
            let fence = lease.fence;
            return if key.pool == *principal.require_pool()? {
                Ok(HeldLease { key, fence })
            } else {
                Err(lease_lost())
            };
        }
        // Apart: who asks for a lease that is known does not carry what looking one up takes.
        let leases = [lease];
        let mut held = Box::pin(self.held(principal, &leases)).await?;
        held.remove(&lease.run_id).ok_or_else(lease_lost)
    }

    /// Remembers where a lease stands; a run keeps bucket, tenant and conversation for life, and a lease its pool, so an
    /// entry is only wrong after another pool has taken the run, and is then replaced.
    pub(crate) fn remember(&self, key: LeaseKey) {
        self.lease_keys().insert(key.run_id, key);
    }
}
