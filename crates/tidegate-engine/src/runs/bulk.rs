//! Cancel and requeue by filter, page by page.
//!
//! Each page is one transaction with the progress up to it, where the caller gave a key: a repeat goes on where the last
//! one was cut off, and many at once do each page once (R3.1). What has ended or moved on by then is left alone by the
//! statements themselves.

use tidegate_model::{
    RunId,
    api::{BulkOutcome, RunFilter},
    limits,
    run::RunState,
};
use tidegate_store::{
    TenantStore,
    repeats::{Progress, Step},
};

use crate::{Engine, Error, Principal};

/// Cancels every run of the caller's tenant that the filter names and that has not ended.
pub async fn cancel_all(
    engine: &Engine,
    principal: &Principal,
    filter: RunFilter,
) -> Result<BulkOutcome, Error> {
    let age_ms = engine.queue_max_age_ms();
    let mut pages = Pages::new(engine, principal, filter).await?;
    while let Some((runs, step)) = pages.next().await? {
        let changed = pages.progress.changed;
        pages.progress = pages.tenant.cancel_step(runs, age_ms, step).await?;
        if pages.progress.changed > changed {
            // The next turns of their conversations may have come up.
            engine.work_changed();
        }
    }
    Ok(pages.outcome())
}

/// Requeues the dead letters of the caller's tenant that the filter names; all failed runs where it names that state.
/// Each passes the checks of a single requeue, and those that do not are left where they are.
pub async fn requeue_all(
    engine: &Engine,
    principal: &Principal,
    mut filter: RunFilter,
) -> Result<BulkOutcome, Error> {
    let age_ms = engine.queue_max_age_ms();
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
    let mut pages = Pages::new(engine, principal, filter).await?;
    while let Some((runs, step)) = pages.next().await? {
        let changed = pages.progress.changed;
        let done = pages.tenant.reopen_step(runs, by.clone(), age_ms, step);
        pages.progress = done.await?;
        if pages.progress.changed > changed {
            engine.work_changed();
        }
    }
    Ok(pages.outcome())
}

/// Walks a filtered list by its cursor, so that no page holds more than its bound.
struct Pages<'a> {
    principal: &'a Principal,
    tenant: TenantStore,
    filter: RunFilter,
    /// Whether the caller bounded the call to the runs that one page of the list would show.
    one_page: bool,
    progress: Progress,
}

impl<'a> Pages<'a> {
    async fn new(
        engine: &Engine,
        principal: &'a Principal,
        mut filter: RunFilter,
    ) -> Result<Self, Error> {
        // Judged before anything is changed; the call has as many pages as there are where no bound is given.
        let one_page = filter.limit.is_some();
        filter.limit = Some(match filter.limit {
            None => limits::PAGE_MAX,
            bounded => super::list::page_size(bounded)?,
        });
        let tenant = engine.store().tenant(principal.require_tenant()?);
        let progress = tenant.progress(principal.intent.as_ref()).await?;
        Ok(Self {
            principal,
            tenant,
            filter,
            one_page,
            progress,
        })
    }

    /// The next page's runs, and the step that writes what becomes of them.
    async fn next(&mut self) -> Result<Option<(Vec<RunId>, Step)>, Error> {
        if self.progress.finished {
            return Ok(None);
        }
        let mut filter = self.filter.clone();
        if self.progress.cursor.is_some() {
            filter.cursor.clone_from(&self.progress.cursor);
        }
        let (runs, next) = super::list::ids(&self.tenant, filter).await?;
        let step = Step {
            intent: self.principal.intent.clone(),
            before: self.progress.clone(),
            next: next.filter(|_| !self.one_page),
        };
        Ok(Some((runs, step)))
    }

    fn outcome(&self) -> BulkOutcome {
        BulkOutcome {
            changed: self.progress.changed,
            requested: self.progress.requested,
        }
    }
}
