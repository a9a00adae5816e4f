//! Pools and their descriptors (R5.1, R5.3): one verb per file.

mod builtin;
mod known;
mod list;
mod policy_generation;
mod publish;
mod revoke_epoch;
mod set_epoch;

pub use builtin::ensure_builtin;
pub(crate) use known::{Pools, PoolsKnown, Served};
pub use list::list;
pub use policy_generation::{policy_generation, set_policy_generation};
pub use publish::publish;
pub use revoke_epoch::revoke_epoch;
pub use set_epoch::set_epoch;

use tidegate_model::{Code, PoolId, api::PoolView};

use crate::{Engine, Error};

/// The pool of the built-in executor is the server's own.
fn refuse_builtin(pool: &PoolId) -> Result<(), Error> {
    if *pool == PoolId::builtin() {
        return Err(Error::refused(
            Code::Forbidden,
            "the pool builtin is published by the server itself; change what it offers with \
             TIDEGATE_BUILTIN_CAPABILITIES",
        ));
    }
    Ok(())
}

/// A pool as it is now.
async fn view(engine: &Engine, pool: &PoolId) -> Result<PoolView, Error> {
    let pools = engine
        .store()
        .list_pools(&engine.settings().execution_scope)
        .await?;
    pools
        .into_iter()
        .find(|view| view.pool_id == *pool)
        .ok_or_else(|| Error::not_found("pool"))
}
