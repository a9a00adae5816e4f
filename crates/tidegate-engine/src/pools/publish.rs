//! Publishing a descriptor: immutable once published; the same content again is a repeat (R5.1).

use std::{collections::BTreeSet, ops::RangeInclusive};

use chrono::{DateTime, Datelike as _, Utc};
use tidegate_model::{
    Capability, Code, ConfigKind, PoolId,
    api::DescriptorEpochView,
    contracts::{CapabilityDescriptor, Label, Region, ResourceScope},
    limits,
    principal::Role,
};
use tidegate_store::pools::publish::Publish;

use super::refuse_builtin;
use crate::{Engine, Error, Principal, checks};

/// The years in which a descriptor or what it rests on may end.
const YEARS: RangeInclusive<i32> = 2000..=9999;
/// The most entries of each list of a descriptor.
const LIST_MAX: usize = 1_000;

/// Publishes a descriptor under an epoch; it is not in force until the epoch is set.
pub async fn publish(
    engine: &Engine,
    principal: &Principal,
    pool: &PoolId,
    epoch: i64,
    descriptor: CapabilityDescriptor,
) -> Result<DescriptorEpochView, Error> {
    principal.require_role(&[Role::PoolController])?;
    refuse_builtin(pool)?;
    check(pool, epoch, &descriptor)?;
    let written = engine
        .store()
        .publish_descriptor(descriptor, &principal.author())
        .await?;
    match engine.written(ConfigKind::Pool, written).await {
        Publish::Published(view) => Ok(view),
        Publish::OtherContent(digest) => Err(Error::refused(
            Code::VersionConflict,
            format!(
                "epoch {epoch} of pool {pool} is published with another content ({digest}) and cannot change; \
                 publish under a higher epoch"
            ),
        )),
    }
}

fn check(pool: &PoolId, epoch: i64, descriptor: &CapabilityDescriptor) -> Result<(), Error> {
    if descriptor.pool_id != *pool {
        return Err(Error::invalid(
            "poolId",
            format!("poolId is {}, but the path says {pool}", descriptor.pool_id),
        ));
    }
    if descriptor.descriptor_epoch != epoch {
        return Err(Error::invalid(
            "descriptorEpoch",
            format!(
                "descriptorEpoch is {}, but the path says {epoch}",
                descriptor.descriptor_epoch
            ),
        ));
    }
    if !(1..=limits::DESCRIPTOR_EPOCH_MAX).contains(&epoch) {
        return Err(Error::invalid(
            "descriptorEpoch",
            format!(
                "{epoch} is out of bounds: 1 to {}",
                limits::DESCRIPTOR_EPOCH_MAX
            ),
        ));
    }
    if !(1..=limits::POLICY_GENERATION_MAX).contains(&descriptor.policy_generation) {
        return Err(Error::invalid(
            "policyGeneration",
            format!(
                "1 to {}; `tidegate pool generation` says which one is in force",
                limits::POLICY_GENERATION_MAX
            ),
        ));
    }
    check_lists(descriptor)?;
    if let Some(model) = &descriptor.model
        && !(1..=limits::BUDGET_MAX).contains(&model.context_tokens)
    {
        return Err(Error::invalid(
            "model.contextTokens",
            format!("1 to {}", limits::BUDGET_MAX),
        ));
    }
    check_times(descriptor)?;
    match &descriptor.runtime_digest {
        Some(digest) => checks::filled("runtimeDigest", digest, checks::LABEL_MAX),
        None => Ok(()),
    }
}

/// Lists are sets: what stands twice is a mistake of whoever wrote the descriptor.
fn check_lists(descriptor: &CapabilityDescriptor) -> Result<(), Error> {
    if descriptor.capabilities.is_empty() {
        return Err(Error::invalid(
            "capabilities",
            "a descriptor without capabilities offers nothing; name at least one",
        ));
    }
    set("capabilities", &descriptor.capabilities, Capability::as_str)?;
    set("labels", &descriptor.labels, Label::as_str)?;
    set("regions", &descriptor.regions, Region::as_str)?;
    set(
        "resourceScopes",
        &descriptor.resource_scopes,
        ResourceScope::as_str,
    )?;
    set("tools", &descriptor.tools, |tool| {
        (&tool.name, &tool.version)
    })?;
    set("runtimes", &descriptor.runtimes, |runtime| {
        (&runtime.name, &runtime.version)
    })?;
    set("qualityGates", &descriptor.quality_gates, |gate| {
        &gate.capability
    })?;
    if let Some(model) = &descriptor.model {
        set("model.modalities", &model.modalities, |modality| modality)?;
    }
    // Several ranges of one capability are alternatives.
    set("schemas", &descriptor.schemas, |range| {
        (
            &range.capability,
            range.task.to_string(),
            range.result.to_string(),
        )
    })?;
    for (field, named) in [
        (
            "schemas",
            descriptor
                .schemas
                .iter()
                .map(|range| &range.capability)
                .collect::<Vec<_>>(),
        ),
        (
            "qualityGates",
            descriptor
                .quality_gates
                .iter()
                .map(|gate| &gate.capability)
                .collect(),
        ),
    ] {
        if let Some(other) = named
            .into_iter()
            .find(|named| !descriptor.capabilities.contains(named))
        {
            return Err(Error::invalid(
                field,
                format!("{other} is not one of capabilities; add it there or leave it out here"),
            ));
        }
    }
    Ok(())
}

/// Refuses a list that is too long or names something twice.
fn set<'a, T, K: Ord>(
    field: &'static str,
    items: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> Result<(), Error> {
    if items.len() > LIST_MAX {
        return Err(Error::invalid(
            field,
            format!("{field} has {} entries; at most {LIST_MAX}", items.len()),
        ));
    }
    let mut seen = BTreeSet::new();
    match items.iter().position(|item| !seen.insert(key(item))) {
        None => Ok(()),
        Some(twice) => Err(Error::invalid(
            format!("{field}[{twice}]"),
            "it stands in the list before; name it once",
        )),
    }
}

/// Evidence comes before its end. What has passed already is published all the same: it serves nothing, and says so.
fn check_times(descriptor: &CapabilityDescriptor) -> Result<(), Error> {
    let health = &descriptor.health;
    let gates = descriptor.quality_gates.iter().enumerate();
    let spans = gates.map(|(index, gate)| {
        (
            format!("qualityGates[{index}]"),
            gate.passed_at,
            gate.valid_until,
        )
    });
    let health = ("health".to_owned(), health.checked_at, health.valid_until);
    for (field, from, until) in std::iter::once(health).chain(spans) {
        if from >= until {
            return Err(Error::invalid(
                format!("{field}.validUntil"),
                "it must be later than the check that it rests on",
            ));
        }
        check_year(&format!("{field}.validUntil"), until)?;
    }
    check_year("expiresAt", descriptor.expires_at)
}

fn check_year(field: &str, time: DateTime<Utc>) -> Result<(), Error> {
    if YEARS.contains(&time.year()) {
        return Ok(());
    }
    Err(Error::invalid(
        field,
        format!(
            "the year {} cannot be meant; give one from {} to {}",
            time.year(),
            YEARS.start(),
            YEARS.end()
        ),
    ))
}
