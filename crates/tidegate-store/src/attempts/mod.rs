//! The only way into and out of `running` (architecture, mistake 2).
//!
//! [`Fleet::open_foreground`] and [`Fleet::open_background`] write lease, slot and event; [`Fleet::close_attempts`]
//! writes attempt, end or next place, event and the conversation's next turn; both in one transaction and by arrays.
//! [`Fleet::end_queued`] ends runs that hold no lease, [`Fleet::reopen`] puts a dead letter back,
//! [`resolve`] takes a person's verdict on a run in review. No other module inserts
//! or deletes leases, slots, attempts or ends.
//!
//! Lock order: conversations by id, then trees of runs, then run rows (leases by key, queue and parked rows), then the
//! try-lock of the bucket, then inserts. Rows of a tree are moved under the tree's lock only, whatever their order.
//! Whatever takes several leases waits for them in the order of their key ([`LeaseKey::order`]), all of them before the first
//! is changed. Marks of descendants and of orphans wait for none, and nothing waits for a lease after them.

pub mod admitted;
pub mod cancel;
pub mod close;
mod effects;
pub mod end_queued;
pub mod ended;
mod locked;
pub mod open;
mod plain;
pub mod prune;
pub mod renew;
pub mod reopen;
pub mod resolve;
pub mod sweep;
mod trees;
pub mod turns;
pub mod waits;

use tidegate_model::{ConversationId, Fence, PoolId, RunId, TenantId, run::QuotaBucket};

/// Where the lease of a run stands: facts that never change while it is open, so that they may be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseKey {
    /// Its account of claims.
    pub bucket: QuotaBucket,
    /// Its tenant.
    pub tenant: TenantId,
    /// The run.
    pub run_id: RunId,
    /// Its conversation, if it is a turn.
    pub conversation_id: Option<ConversationId>,
    /// The pool it runs in.
    pub pool: PoolId,
}

impl LeaseKey {
    /// By what those who lock several leases order them.
    pub(crate) fn order(&self) -> (i16, &str, uuid::Uuid) {
        let bucket = bucket_number(self.bucket);
        (bucket, self.tenant.as_str(), self.run_id.as_uuid())
    }
}

/// A lease that its holder claims to hold: where it stands, and the fence that proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// Where it stands.
    pub key: LeaseKey,
    /// The holder's fence.
    pub fence: Fence,
}

/// The number of a bucket in the narrow tables.
pub const fn bucket_number(bucket: QuotaBucket) -> i16 {
    match bucket {
        QuotaBucket::Foreground => 0,
        QuotaBucket::Background => 1,
        QuotaBucket::Uncounted => 2,
    }
}

/// The bucket of a number in the narrow tables.
pub fn bucket_of(number: i16) -> Result<QuotaBucket, crate::Error> {
    match number {
        0 => Ok(QuotaBucket::Foreground),
        1 => Ok(QuotaBucket::Background),
        2 => Ok(QuotaBucket::Uncounted),
        _ => Err(crate::Error::Corrupt { what: "bucket" }),
    }
}
