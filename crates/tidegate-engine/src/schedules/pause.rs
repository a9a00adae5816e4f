//! `POST /v1/schedules/{name}/pause` and `…/resume`.

use tidegate_model::{api::ScheduleView, ids::ScheduleName};

use super::view::view;
use crate::{Engine, Error, Principal};

/// Whether a schedule is to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firing {
    /// Nothing is fired until it is resumed.
    Paused,
    /// It fires again; for what it missed its rule for missed runs holds.
    Resumed,
}

/// Pauses or resumes a schedule of the caller's tenant.
pub async fn pause(
    engine: &Engine,
    principal: &Principal,
    name: &ScheduleName,
    firing: Firing,
) -> Result<ScheduleView, Error> {
    let tenant = principal.require_tenant()?;
    let row = engine
        .store()
        .tenant(tenant)
        .pause_schedule(name, firing == Firing::Paused, principal.intent.as_ref())
        .await?
        .ok_or_else(|| Error::not_found("schedule"))?;
    Ok(view(tenant, row))
}
