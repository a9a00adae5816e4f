//! Which pools may serve a requirement (R6.3, R5.4). One rule for claim, explain and display.
//!
//! Every clause is a hard filter, none a score, and no setting switches one off. A pool that is filtered out has every
//! clause that it fails, in the order of [`PoolReason`]; what it fails first is its reason.
//!
//! Time is handed in: the clauses that depend on it say until when an answer holds ([`Eligibility::valid_until`]), so that an
//! answer can be kept per requirement, epochs and policy generation.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tidegate_model::{
    PoolId,
    contracts::{CapabilityDescriptor, TaskRequirements},
    pool_reason::PoolReason,
};

/// What is known of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOffer {
    /// The pool.
    pub pool: PoolId,
    /// The epoch in force; absent until one is activated.
    pub epoch: Option<i64>,
    /// The descriptor in force; `None` where this release cannot read it (R6.2).
    pub descriptor: Option<Arc<CapabilityDescriptor>>,
}

/// What holds for all pools when they are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time by the database's clock.
    pub now: DateTime<Utc>,
    /// The policy generation in force (R5.3).
    pub policy_generation: i64,
}

/// What would make a pool meet the clause, as an instruction to its controller or to the run's caller.
pub const fn remedy(reason: PoolReason) -> &'static str {
    match reason {
        PoolReason::DescriptorEpochStale => "put one of its published epochs in force",
        PoolReason::UnknownField => {
            "upgrade this server, or publish a descriptor of a contract version that it knows"
        }
        PoolReason::CapabilityMissing => "add the capability to its descriptor",
        PoolReason::TenantIsolationMismatch => "have its isolation admit the tenant",
        PoolReason::ClassificationDenied => {
            "have its labels contain every one of inputLabels, or send less"
        }
        PoolReason::RegionNotAllowed => "have allowedRegions contain every region of the pool",
        PoolReason::SandboxTooWeak => "raise its sandbox, or lower the run's floor",
        PoolReason::ResourceScopeDenied => {
            "add the missing ones of resourceScopes to its descriptor"
        }
        PoolReason::SchemaIncompatible => {
            "have its schemas contain the run's taskSchema and resultSchema for the capability"
        }
        PoolReason::ToolMissing => "add the missing tools to its descriptor",
        PoolReason::ToolVersionMismatch => {
            "offer the tools in the versions, with the schemas, that the run asks for"
        }
        PoolReason::RuntimeMismatch => "offer the runtimes in the versions that the run asks for",
        PoolReason::ModelLimitExceeded => {
            "offer a model with the context and the modalities that the run asks for"
        }
        PoolReason::PolicyGenerationStale => "publish it anew under the policy generation in force",
        PoolReason::DescriptorExpired => "publish it anew with a later expiresAt",
        PoolReason::HealthEvidenceStale => "publish it anew with fresh health evidence",
        PoolReason::CapacityExceeded => {
            "make the resources that the run takes, or raise their capacity, with `tidegate ledger set`; or ask for less"
        }
    }
}

/// A pool that was filtered out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedPool {
    /// The pool.
    pub pool: PoolId,
    /// The first clause that it fails.
    pub reason: PoolReason,
    /// The other clauses that it fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<PoolReason>,
}

impl RefusedPool {
    /// Every clause that it fails, in order.
    pub fn reasons(&self) -> impl Iterator<Item = PoolReason> {
        std::iter::once(self.reason).chain(self.also.iter().copied())
    }
}

/// The pool that offers the capability and fails the fewest other clauses; the first of several.
pub fn nearest(refused: &[RefusedPool]) -> Option<&RefusedPool> {
    let offers = |pool: &&RefusedPool| {
        !pool.reasons().any(|reason| {
            matches!(
                reason,
                PoolReason::CapabilityMissing
                    | PoolReason::DescriptorEpochStale
                    | PoolReason::UnknownField
            )
        })
    };
    refused
        .iter()
        .filter(offers)
        .min_by_key(|pool| pool.also.len())
}

/// All pools, sorted by whether they may serve a requirement; each in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eligibility {
    /// May serve it at their total capacity.
    pub eligible: Vec<PoolId>,
    /// May not, with the reason.
    pub refused: Vec<RefusedPool>,
    /// When the first of the eligible ones stops being it by itself; `None` where none is eligible.
    pub valid_until: Option<DateTime<Utc>>,
}

impl Eligibility {
    /// Whether some pool may serve it, now or when it is free.
    pub const fn is_satisfiable(&self) -> bool {
        !self.eligible.is_empty()
    }

    /// Whether the pool of the built-in executor may serve it and no other, so that what its runs hold is for that
    /// executor to say. Where another pool offers the capability too, its workers may read another shape.
    pub fn is_builtin_only(&self) -> bool {
        matches!(self.eligible.as_slice(), [pool] if *pool == PoolId::builtin())
    }
}

/// A clause that a descriptor has to meet for some requirements.
type Clause = fn(&CapabilityDescriptor, &TaskRequirements) -> bool;

/// What requirements ask of a readable descriptor; the reason where it does not have it.
const CLAUSES: &[(PoolReason, Clause)] = &[
    (PoolReason::CapabilityMissing, |pool, task| {
        pool.capabilities.contains(&task.capability)
    }),
    (PoolReason::TenantIsolationMismatch, |pool, task| {
        pool.isolation.admits(&task.tenant)
    }),
    (PoolReason::ClassificationDenied, |pool, task| {
        subset(&task.needs.input_labels, &pool.labels)
    }),
    (PoolReason::RegionNotAllowed, |pool, task| {
        let allowed = &task.needs.allowed_regions;
        allowed.is_empty() || (!pool.regions.is_empty() && subset(&pool.regions, allowed))
    }),
    (PoolReason::SandboxTooWeak, |pool, task| {
        pool.sandbox >= task.needs.sandbox
    }),
    (PoolReason::ResourceScopeDenied, |pool, task| {
        subset(&task.needs.resource_scopes, &pool.resource_scopes)
    }),
    (PoolReason::SchemaIncompatible, |pool, task| {
        schemas_fit(pool, task)
    }),
    (PoolReason::ToolMissing, |pool, task| {
        task.needs
            .tools
            .iter()
            .all(|need| pool.tools.iter().any(|tool| tool.name == need.name))
    }),
    (PoolReason::ToolVersionMismatch, |pool, task| {
        tools_fit(pool, task)
    }),
    (PoolReason::RuntimeMismatch, |pool, task| {
        task.needs.runtimes.iter().all(|need| {
            pool.runtimes
                .iter()
                .any(|there| there.name == need.name && need.versions.contain(&there.version))
        })
    }),
    (PoolReason::ModelLimitExceeded, |pool, task| {
        model_fits(pool, task)
    }),
];

/// A clause that a descriptor has to meet whatever is asked for.
type PoolClause = fn(&CapabilityDescriptor, Moment) -> bool;

/// What a descriptor has to meet at a moment to serve anything.
const POOL_CLAUSES: &[(PoolReason, PoolClause)] = &[
    (PoolReason::PolicyGenerationStale, |pool, moment| {
        pool.policy_generation == moment.policy_generation
    }),
    (PoolReason::DescriptorExpired, |pool, moment| {
        moment.now < pool.expires_at
    }),
    (PoolReason::HealthEvidenceStale, |pool, moment| {
        moment.now < pool.health.valid_until
    }),
];

fn subset<T: PartialEq>(some: &[T], all: &[T]) -> bool {
    some.iter().all(|one| all.contains(one))
}

/// What asks for no version takes any; what asks for one goes to pools that say they have it (O-09).
fn schemas_fit(pool: &CapabilityDescriptor, task: &TaskRequirements) -> bool {
    let (sent, read) = (&task.needs.task_schema, &task.needs.result_schema);
    if sent.is_none() && read.is_none() {
        return true;
    }
    pool.schemas
        .iter()
        .filter(|range| range.capability == task.capability)
        .any(|range| {
            sent.as_ref().is_none_or(|sent| range.task.contain(sent))
                && read.as_ref().is_none_or(|read| range.result.contain(read))
        })
}

/// Of the tools that are there by name; what is missing has a reason of its own.
fn tools_fit(pool: &CapabilityDescriptor, task: &TaskRequirements) -> bool {
    task.needs.tools.iter().all(|need| {
        let mut named = pool
            .tools
            .iter()
            .filter(|tool| tool.name == need.name)
            .peekable();
        named.peek().is_none()
            || named.any(|tool| {
                need.versions.contain(&tool.version)
                    && need
                        .schema_digest
                        .is_none_or(|digest| digest == tool.schema_digest)
            })
    })
}

fn model_fits(pool: &CapabilityDescriptor, task: &TaskRequirements) -> bool {
    let Some(need) = &task.needs.model else {
        return true;
    };
    pool.model.as_ref().is_some_and(|limits| {
        limits.context_tokens >= need.context_tokens && subset(&need.modalities, &limits.modalities)
    })
}

/// The clauses of some requirements that a descriptor fails, in order, whatever the time.
pub fn unmet(
    descriptor: &CapabilityDescriptor,
    task: &TaskRequirements,
) -> impl Iterator<Item = PoolReason> {
    CLAUSES
        .iter()
        .filter(move |(_, met)| !met(descriptor, task))
        .map(|(reason, _)| *reason)
}

/// The descriptor of a pool that is in force; why there is none that can be read.
pub fn in_force(offer: &PoolOffer) -> Result<&Arc<CapabilityDescriptor>, PoolReason> {
    match (offer.epoch, &offer.descriptor) {
        (None, _) => Err(PoolReason::DescriptorEpochStale),
        (Some(_), None) => Err(PoolReason::UnknownField),
        (Some(_), Some(descriptor)) => Ok(descriptor),
    }
}

/// Why a pool serves nothing at a moment, whatever is asked for, in order; nothing where it serves.
pub fn closed(offer: &PoolOffer, moment: Moment) -> impl Iterator<Item = PoolReason> {
    let there = in_force(offer);
    let failed = there.ok().into_iter().flat_map(move |descriptor| {
        POOL_CLAUSES
            .iter()
            .filter(move |(_, met)| !met(descriptor, moment))
            .map(|(reason, _)| *reason)
    });
    there.err().into_iter().chain(failed)
}

/// The clauses that a pool fails, in order; none where it may serve the requirement. Matching is exact (R6.2).
pub fn blocked(
    offer: &PoolOffer,
    task: &TaskRequirements,
    moment: Moment,
) -> impl Iterator<Item = PoolReason> {
    let unmet = in_force(offer)
        .into_iter()
        .flat_map(move |descriptor| unmet(descriptor, task));
    unmet.chain(closed(offer, moment))
}

/// Until when a pool that may serve a requirement goes on to, by itself.
fn serves_until(descriptor: &CapabilityDescriptor) -> DateTime<Utc> {
    descriptor.expires_at.min(descriptor.health.valid_until)
}

/// Sorts the pools by whether they may serve a requirement.
pub fn sort<'a>(
    pools: impl IntoIterator<Item = &'a PoolOffer>,
    task: &TaskRequirements,
    moment: Moment,
) -> Eligibility {
    let mut sorted = Eligibility::default();
    for offer in pools {
        let mut failed = blocked(offer, task, moment);
        if let Some(reason) = failed.next() {
            sorted.refused.push(RefusedPool {
                pool: offer.pool.clone(),
                reason,
                also: failed.collect(),
            });
            continue;
        }
        sorted.eligible.push(offer.pool.clone());
        if let Some(descriptor) = &offer.descriptor {
            let until = serves_until(descriptor);
            sorted.valid_until = Some(sorted.valid_until.map_or(until, |first| first.min(until)));
        }
    }
    sorted
}

#[cfg(test)]
mod tests;
