//! Cancel and requeue by filter, page by page. What has ended or moved on by then is left alone by the statements
//! themselves.

use tidegate_model::{
    RunId,
    api::{BulkOutcome, RunFilter},
    limits,
    run::RunState,
};
use tidegate_store::TenantStore;

use super::cancel::cancel_some;
use crate::{Engine, Error, Principal};

/// Cancels every run of the caller's tenant that the filter names and that has not ended.
pub async fn cancel_all(
    engine: &Engine,
    principal: &Principal,
    filter: RunFilter,
) -> Result<BulkOutcome, Error> {
    let mut outcome = BulkOutcome {
        changed: 0,
        requested: 0,
    };
    let tenant = engine.store().tenant(principal.require_tenant()?);
    let mut pages = Pages::new(filter);
    while let Some(runs) = pages.next(&tenant).await? {
        let cancelled = cancel_some(engine, principal, runs).await?;
        outcome.changed += cancelled.ended;
        outcome.requested += cancelled.requested;
    }
    Ok(outcome)
}

/// Requeues the dead letters of the caller's tenant that the filter names; all failed runs where it names that state.
/// Each passes the checks of a single requeue, and those that do not are left where they are.
pub async fn requeue_all(
    engine: &Engine,
    principal: &Principal,
    mut filter: RunFilter,
) -> Result<BulkOutcome, Error> {
    let tenant = engine.store().tenant(principal.require_tenant()?);
    let by = principal.key_id.to_string();
    match filter.state {
        None => filter.dead_letters = Some(true),
        Some(RunState::Failed) => {}
        Some(state) => {
            return Err(Error::invalid(
                "state",
                format!(
                    "{state} runs cannot be requeued together; failed, or leave it out for dead letters"
                ),
            ));
        }
    }
    let mut changed = 0;
    let mut pages = Pages::new(filter);
    while let Some(runs) = pages.next(&tenant).await? {
        let reopened = tenant
            .reopen(runs, by.clone(), engine.queue_max_age_ms())
            .await?;
        changed += reopened.len() as u64;
    }
    if changed > 0 {
        engine.work_changed();
    }
    Ok(BulkOutcome {
        changed,
        requested: 0,
    })
}

/// Walks a filtered list by its cursor, so that no page holds more than its bound.
struct Pages {
    filter: RunFilter,
    done: bool,
}

impl Pages {
    fn new(mut filter: RunFilter) -> Self {
        filter.limit = Some(limits::PAGE_MAX);
        Self {
            filter,
            done: false,
        }
    }

    async fn next(&mut self, store: &TenantStore) -> Result<Option<Vec<RunId>>, Error> {
        if self.done {
            return Ok(None);
        }
        let (runs, next_cursor) = super::list::ids(store, self.filter.clone()).await?;
        self.done = next_cursor.is_none();
        self.filter.cursor = next_cursor;
        Ok(Some(runs))
    }
}
