//! Putting a published epoch in force: compare-and-set, never lowered (R5.3).

use tidegate_model::{
    Code, ConfigKind, PoolId,
    api::{PoolView, SetEpoch},
    principal::Role,
};
use tidegate_store::pools::epochs::MoveEpoch;

use super::{refuse_builtin, view};
use crate::{Engine, Error, Principal};

/// The most epochs that drain at once.
const DRAINING_MAX: usize = 100;

/// Puts an epoch in force, and says which others may end what they have begun.
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
    let draining = request.draining.as_ref().map_or(0, Vec::len);
    if draining > DRAINING_MAX {
        return Err(Error::invalid(
            "draining",
            format!("{draining} epochs; at most {DRAINING_MAX} may drain at once"),
        ));
    }
    let active = request.active;
    let expected = request.expected;
    let written = engine
        .store()
        .move_epoch(pool, request, &principal.author())
        .await?;
    let moved = engine.written(ConfigKind::Pool, written).await;
    check_moved(pool, expected, active, &moved)?;
    engine.claims().wake();
    view(engine, pool).await
}

/// Why the epoch was not moved, where it was not.
fn check_moved(
    pool: &PoolId,
    expected: Option<i64>,
    active: i64,
    moved: &MoveEpoch,
) -> Result<(), Error> {
    let field = |epoch: &i64| {
        if *epoch == active {
            "active"
        } else {
            "draining"
        }
    };
    match moved {
        MoveEpoch::InForce => Ok(()),
        MoveEpoch::NoPool => Err(Error::not_found("pool")),
        MoveEpoch::NotPublished(epoch) => Err(Error::invalid(
            field(epoch),
            format!("epoch {epoch} of pool {pool} is not published; publish it first"),
        )),
        MoveEpoch::Revoked(epoch) => Err(Error::invalid(
            field(epoch),
            format!(
                "epoch {epoch} of pool {pool} was revoked and nothing may use it again; publish a descriptor that may \
                     be used under a higher epoch"
            ),
        )),
        MoveEpoch::Other(active) => {
            let active = active.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
            let said = match expected {
                None => format!(
                    "without expected only a pool that has none in force is changed; send \"expected\": {active} to \
                     go on from it"
                ),
                Some(expected) => format!("not {expected} as expected says; look and try again"),
            };
            Err(Error::refused(
                Code::VersionConflict,
                format!("the epoch in force of pool {pool} is {active}; {said}"),
            ))
        }
        MoveEpoch::Lower(active) => Err(Error::invalid(
            "active",
            format!(
                "epoch {active} is in force and an epoch is never lowered; to roll back, publish the old content \
                     under a higher epoch"
            ),
        )),
    }
}
