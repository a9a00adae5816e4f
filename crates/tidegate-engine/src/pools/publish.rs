//! Publishing a descriptor: immutable once published; the same content again is a repeat (R5.1).

use tidegate_model::{
    Code, ConfigKind, PoolId, api::DescriptorEpochView, contracts::CapabilityDescriptor, limits,
    principal::Role,
};
use tidegate_store::pools::Publish;

use super::refuse_builtin;
use crate::{Engine, Error, Principal, checks};

/// The most capabilities of a pool.
const CAPABILITIES_MAX: usize = 1_000;

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
    let count = descriptor.capabilities.len();
    if count == 0 || count > CAPABILITIES_MAX {
        return Err(Error::invalid(
            "capabilities",
            format!("capabilities has {count} entries; 1 to {CAPABILITIES_MAX} are allowed"),
        ));
    }
    let mut sorted = descriptor.capabilities.clone();
    sorted.sort();
    if let Some([twice, _]) = sorted.array_windows().find(|[one, next]| one == next) {
        return Err(Error::invalid(
            "capabilities",
            format!("capabilities names {twice} twice"),
        ));
    }
    match &descriptor.runtime_digest {
        Some(digest) => checks::filled("runtimeDigest", digest, checks::LABEL_MAX),
        None => Ok(()),
    }
}
