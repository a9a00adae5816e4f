//! Cancel and requeue by filter, page by page.

use tidegate_model::{
    RunId,
    api::{BulkOutcome, RunFilter},
    limits,
    run::RunState,
};

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
    let mut pages = Pages::new(filter);
    while let Some(runs) = pages
        .next(engine, principal, |state| !state.is_ended())
        .await?
    {
        let cancelled = cancel_some(engine, principal, runs).await?;
        outcome.changed += cancelled.ended;
        outcome.requested += cancelled.requested;
    }
    Ok(outcome)
}

/// Requeues every failed run of the caller's tenant that the filter names.
pub async fn requeue_all(
    engine: &Engine,
    principal: &Principal,
    filter: RunFilter,
) -> Result<BulkOutcome, Error> {
    let tenant = engine.store().tenant(principal.require_tenant()?);
    let by = principal.key_id.to_string();
    let mut changed = 0;
    let mut pages = Pages::new(filter);
    while let Some(runs) = pages
        .next(engine, principal, |state| state == RunState::Failed)
        .await?
    {
        let reopened = tenant
            .reopen(runs, by.clone(), engine.queue_max_age_ms())
            .await?;
        changed += reopened.len() as u64;
    }
    if changed > 0 {
        engine.work_changed().await;
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

    async fn next(
        &mut self,
        engine: &Engine,
        principal: &Principal,
        wanted: fn(RunState) -> bool,
    ) -> Result<Option<Vec<RunId>>, Error> {
        if self.done {
            return Ok(None);
        }
        let page = super::list::list(engine, principal, self.filter.clone()).await?;
        self.done = page.next_cursor.is_none();
        self.filter.cursor = page.next_cursor;
        Ok(Some(
            page.items
                .into_iter()
                .filter(|run| wanted(run.state))
                .map(|run| run.run_id)
                .collect(),
        ))
    }
}
