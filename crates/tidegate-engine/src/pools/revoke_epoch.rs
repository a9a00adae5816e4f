//! Taking an epoch away for good (R18.3): the security revocation of what was published.

use tidegate_model::{
    ConfigKind, PoolId,
    api::{PoolView, RevokeEpoch},
    principal::Role,
};
use tidegate_store::pools::epochs;

use super::{refuse_builtin, view};
use crate::{Engine, Error, Principal};

/// Revokes an epoch. What runs under it is told to stop; a repeat changes nothing.
pub async fn revoke_epoch(
    engine: &Engine,
    principal: &Principal,
    pool: &PoolId,
    request: RevokeEpoch,
) -> Result<PoolView, Error> {
    principal.require_role(&[Role::PoolController, Role::SuperAdmin])?;
    refuse_builtin(pool)?;
    let written = engine
        .store()
        .revoke_epoch(pool, request.epoch, &principal.author())
        .await?;
    match engine.written(ConfigKind::Pool, written).await {
        epochs::RevokeEpoch::Revoked => {}
        epochs::RevokeEpoch::NoPool => return Err(Error::not_found("pool")),
        epochs::RevokeEpoch::NotPublished => {
            return Err(Error::invalid(
                "epoch",
                format!(
                    "epoch {} of pool {pool} was never published; `tidegate pool list` shows those that were",
                    request.epoch
                ),
            ));
        }
    }
    view(engine, pool).await
}
