//! `GET /v1/runs/{id}`: where a run is, and while it is queued why.

use tidegate_model::{RunId, api::RunView};

use super::view::{Seen, view, with_reasons};
use crate::{Engine, Error, Principal};

/// A run of the caller's tenant; others are not found (R2.2).
pub async fn get(engine: &Engine, principal: &Principal, run: RunId) -> Result<RunView, Error> {
    Ok(view(&seen(engine, principal, run).await?))
}

/// A run of the caller's tenant with all its reasons.
pub(super) async fn seen(
    engine: &Engine,
    principal: &Principal,
    run: RunId,
) -> Result<Seen, Error> {
    let store = engine.store().tenant(principal.require_tenant()?);
    let row = store
        .run(run)
        .await?
        .ok_or_else(|| Error::not_found("run"))?;
    with_reasons(engine, &store, vec![row])
        .await?
        .pop()
        .ok_or(Error::Internal {
            what: "a run lost its reasons",
        })
}
