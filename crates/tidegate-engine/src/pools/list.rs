//! Every pool with its descriptors.

use tidegate_model::{api::PoolView, principal::Role};

use crate::{Engine, Error, Principal};

/// Every pool.
pub async fn list(engine: &Engine, principal: &Principal) -> Result<Vec<PoolView>, Error> {
    principal.require_role(&[Role::SuperAdmin, Role::PoolController])?;
    Ok(engine
        .store()
        .list_pools(&engine.settings().execution_scope)
        .await?)
}
