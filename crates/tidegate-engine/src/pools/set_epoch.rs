//! Putting a published epoch in force: compare-and-set, never lowered (R5.3).

use tidegate_model::{
    Code, ConfigKind, PoolId,
    api::{PoolView, SetEpoch},
    principal::Role,
};
use tidegate_store::pools::MoveEpoch;

use super::refuse_builtin;
use crate::{Engine, Error, Principal};

/// Puts an epoch in force.
pub async fn set_epoch(
    engine: &Engine,
    principal: &Principal,
    pool: &PoolId,
    request: SetEpoch,
) -> Result<PoolView, Error> {
    principal.require_role(&[Role::PoolController])?;
    refuse_builtin(pool)?;
    if request.active < 1 {
        return Err(Error::invalid("active", "active must be at least 1"));
    }
    let written = engine
        .store()
        .move_epoch(pool, request, &principal.author())
        .await?;
    match engine.written(ConfigKind::Pool, written).await {
        MoveEpoch::InForce => {}
        MoveEpoch::NoPool => return Err(Error::not_found("pool")),
        MoveEpoch::NotPublished => {
            return Err(Error::invalid(
                "active",
                format!(
                    "epoch {} of pool {pool} is not published; publish it first",
                    request.active
                ),
            ));
        }
        MoveEpoch::Other(active) => {
            let active = active.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
            let said = match request.expected {
                None => format!(
                    "without expected only a pool that has none in force is changed; send \"expected\": {active} to \
                     go on from it"
                ),
                Some(expected) => format!("not {expected} as expected says; look and try again"),
            };
            return Err(Error::refused(
                Code::VersionConflict,
                format!("the epoch in force of pool {pool} is {active}; {said}"),
            ));
        }
        MoveEpoch::Lower(active) => {
            return Err(Error::invalid(
                "active",
                format!(
                    "epoch {active} is in force and an epoch is never lowered; to roll back, publish the old content \
                     under a higher epoch"
                ),
            ));
        }
    }
    engine.claims().wake();
    let pools = engine.store().list_pools().await?;
    pools
        .into_iter()
        .find(|view| view.pool_id == *pool)
        .ok_or_else(|| Error::not_found("pool"))
}
