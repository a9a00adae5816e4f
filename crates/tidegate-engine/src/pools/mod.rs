//! Pools and their descriptors (R5.1, R5.3): one verb per file.

mod builtin;
mod list;
mod publish;
mod set_epoch;

pub use builtin::ensure_builtin;
pub use list::list;
pub use publish::publish;
pub use set_epoch::set_epoch;

use tidegate_model::{Code, PoolId};

use crate::Error;

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
