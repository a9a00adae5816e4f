//! `GET /v1/runs`: a tenant's runs, newest first, by filter and page.

use tidegate_model::{
    RunId,
    api::{Page, RunFilter, RunView},
    limits,
};
use tidegate_store::{TenantStore, read::list::ListFilter};

use super::view::{view, with_reasons};
use crate::{Engine, Error, Principal};

/// A page of the caller's runs. Results are left out; read one run for its result. A run that moved on while the page
/// was read shows where it is now.
pub async fn list(
    engine: &Engine,
    principal: &Principal,
    filter: RunFilter,
) -> Result<Page<RunView>, Error> {
    let store = engine.store().tenant(principal.require_tenant()?);
    let (ids, next_cursor) = ids(&store, filter).await?;
    let rows = store.runs(&ids).await?;
    let mut items: Vec<RunView> = with_reasons(engine, &store, rows)
        .await?
        .iter()
        .map(view)
        .collect();
    for item in &mut items {
        item.result = None;
    }
    Ok(Page { items, next_cursor })
}

/// The runs of a page, and where it ended.
pub(super) async fn ids(
    store: &TenantStore,
    filter: RunFilter,
) -> Result<(Vec<RunId>, Option<String>), Error> {
    let limit = page_size(filter.limit)?;
    let before = filter
        .cursor
        .as_deref()
        .map(|cursor| {
            cursor.parse::<RunId>().map_err(|_| {
                Error::invalid(
                    "cursor",
                    "not a cursor of this list; pass the nextCursor of the page before",
                )
            })
        })
        .transpose()?;
    let wanted = ListFilter {
        state: filter.state,
        capability: filter.capability,
        conversation_id: filter.conversation_id,
        schedule: filter.schedule,
        dead_letters: filter.dead_letters.unwrap_or(false),
        before,
        // One more than the page tells whether another one follows.
        limit: i64::from(limit) + 1,
    };
    let mut ids = store.list_runs(&wanted).await?;
    let more = ids.len() > limit as usize;
    ids.truncate(limit as usize);
    let next_cursor = ids.last().filter(|_| more).map(RunId::to_string);
    Ok((ids, next_cursor))
}

pub(super) fn page_size(limit: Option<u32>) -> Result<u32, Error> {
    let limit = limit.unwrap_or(limits::PAGE_DEFAULT);
    if (1..=limits::PAGE_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(Error::invalid(
            "limit",
            format!("1 to {}", limits::PAGE_MAX),
        ))
    }
}
