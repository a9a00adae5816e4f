//! What a grant with everything that narrows it allows, as a pure decision.

use chrono::{DateTime, Utc};
use tidegate_model::{
    Fence,
    contracts::{AdmissionGrant, ResourceName},
};

use crate::problem::{FenceOf, GrantProblem};

/// What one block narrows a grant to. What is not named stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallTerms {
    /// This resource, tool or model alone.
    pub resource: Option<ResourceName>,
    /// At most so much, over all calls.
    pub max_amount: Option<u64>,
    /// At most so many calls.
    pub max_calls: Option<u64>,
    /// Worth nothing from then on, in whole seconds.
    pub expires_at: Option<DateTime<Utc>>,
    /// For the attempt with this fence of its lease, or an older one.
    pub lease_fence: Option<Fence>,
}

impl CallTerms {
    /// Whether they narrow nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What somebody wants to consume, and what the point of consumption knows. Counts are totals: what was used under this
/// token before, and what is asked for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// The resource, tool or model.
    pub resource: ResourceName,
    /// How much, what was used before included.
    pub amount: u64,
    /// Which call it is, from 1; 0 asks for none.
    pub calls: u64,
    /// The highest fence of the admission that the point knows.
    pub known_fence: Option<Fence>,
    /// The highest fence of the run's lease that the point knows.
    pub known_lease_fence: Option<Fence>,
}

impl Demand {
    /// So much of a resource in one call, by a point that knows no fences.
    pub const fn of(resource: ResourceName, amount: u64, calls: u64) -> Self {
        Self {
            resource,
            amount,
            calls,
            known_fence: None,
            known_lease_fence: None,
        }
    }
}

/// When the grant ends: the earliest of all its ends.
pub(crate) fn ends_at(grant: &AdmissionGrant, blocks: &[CallTerms]) -> DateTime<Utc> {
    blocks
        .iter()
        .filter_map(|terms| terms.expires_at)
        .fold(grant.expires_at, DateTime::min)
}

/// Whether a demand is within a grant and all that narrows it.
pub(crate) fn decide(
    grant: &AdmissionGrant,
    blocks: &[CallTerms],
    now: DateTime<Utc>,
    demand: &Demand,
) -> Result<(), GrantProblem> {
    let at = ends_at(grant, blocks);
    if now >= at {
        return Err(GrantProblem::Expired { at });
    }
    fence(FenceOf::Admission, Some(grant.fence), demand.known_fence)?;
    for terms in blocks {
        fence(FenceOf::Lease, terms.lease_fence, demand.known_lease_fence)?;
    }
    let granted = granted(grant, blocks, &demand.resource)?;
    if demand.amount > granted {
        return Err(GrantProblem::AmountAbove {
            asked: demand.amount,
            granted,
        });
    }
    match blocks.iter().filter_map(|terms| terms.max_calls).min() {
        Some(granted) if demand.calls > granted => Err(GrantProblem::CallsAbove {
            asked: demand.calls,
            granted,
        }),
        _ => Ok(()),
    }
}

fn fence(of: FenceOf, held: Option<Fence>, known: Option<Fence>) -> Result<(), GrantProblem> {
    match (held, known) {
        (Some(held), Some(known)) if held < known => {
            Err(GrantProblem::FenceStale { of, held, known })
        }
        _ => Ok(()),
    }
}

/// How much of a resource there is after all that narrows it.
pub(crate) fn granted(
    grant: &AdmissionGrant,
    blocks: &[CallTerms],
    resource: &ResourceName,
) -> Result<u64, GrantProblem> {
    let not_granted = || GrantProblem::NotGranted {
        resource: resource.clone(),
    };
    let others = |terms: &CallTerms| terms.resource.as_ref().is_some_and(|only| only != resource);
    if blocks.iter().any(others) {
        return Err(not_granted());
    }
    let held = grant
        .grants
        .iter()
        .find(|held| held.resource == *resource)
        .ok_or_else(not_granted)?;
    let held = u64::try_from(held.amount).map_err(|_| not_granted())?;
    Ok(blocks
        .iter()
        .filter_map(|terms| terms.max_amount)
        .fold(held, u64::min))
}
