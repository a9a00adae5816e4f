//! `DELETE /v1/schedules/{name}`.

use tidegate_model::ids::ScheduleName;
use tidegate_store::catalog::Delete;

use crate::{Engine, Error, Principal};

/// Deletes a schedule of the caller's tenant. Its runs stay, those that are open too.
pub async fn delete(
    engine: &Engine,
    principal: &Principal,
    name: &ScheduleName,
) -> Result<(), Error> {
    let tenant = principal.require_tenant()?;
    let deleted = engine
        .store()
        .tenant(tenant)
        .delete_schedule(name, principal.intent.as_ref())
        .await?;
    match deleted {
        Delete::Deleted => Ok(()),
        Delete::NotFound | Delete::Used(_) => Err(Error::not_found("schedule")),
    }
}
