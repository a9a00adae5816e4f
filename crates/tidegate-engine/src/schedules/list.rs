//! `GET /v1/schedules`.

use tidegate_model::{
    api::{Page, PageQuery, ScheduleView},
    ids::ScheduleName,
};

use super::view::view;
use crate::{Engine, Error, Principal, checks};

/// A page of the schedules of the caller's tenant, by name.
pub async fn list(
    engine: &Engine,
    principal: &Principal,
    query: &PageQuery,
) -> Result<Page<ScheduleView>, Error> {
    let tenant = principal.require_tenant()?;
    let size = checks::page_size(query)?;
    let after = checks::cursor::<ScheduleName>(query)?;
    let rows = engine
        .store()
        .tenant(tenant)
        .schedules(after.as_ref(), size + 1)
        .await?;
    let items = rows.into_iter().map(|row| view(tenant, row)).collect();
    Ok(checks::page(items, size, |item: &ScheduleView| {
        item.name.to_string()
    }))
}
