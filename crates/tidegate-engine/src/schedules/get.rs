//! `GET /v1/schedules/{name}`.

use tidegate_model::{api::ScheduleView, ids::ScheduleName};

use super::view::view;
use crate::{Engine, Error, Principal};

/// A schedule of the caller's tenant.
pub async fn get(
    engine: &Engine,
    principal: &Principal,
    name: &ScheduleName,
) -> Result<ScheduleView, Error> {
    let tenant = principal.require_tenant()?;
    let row = engine
        .store()
        .tenant(tenant)
        .schedule(name)
        .await?
        .ok_or_else(|| Error::not_found("schedule"))?;
    Ok(view(tenant, row))
}
