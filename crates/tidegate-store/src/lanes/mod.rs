//! Lanes: what the claim plans with, and what blocks them (R3.8, R3.9).
//!
//! [`views`] reads the heads of the lanes for the plan of a claim, [`facts`] what the reasons of waiting are made of,
//! [`waits`] keeps the intervals in which a cause held, [`passes`] what tenants have been charged. Nothing here decides: order,
//! caps and reasons are `tidegate-policy`'s.
//!
//! Invariant: no statement here walks the backlog; lanes are found by a loose scan over the key of `run_queue`, which
//! costs a probe per lane.

pub mod facts;
pub mod passes;
pub mod views;
pub mod waits;

use tidegate_model::{TenantId, run::QuotaBucket};

/// Which lane of an execution scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    /// Its account of claims.
    pub bucket: QuotaBucket,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its requirement class.
    pub class: i32,
}
