//! `POST /v1/worker/runs/{id}/context`: what an attempt goes on from.

use std::collections::HashMap;

use tidegate_model::{
    RunId,
    api::{ChildView, ContextAnswer, ContextRequest, LeaseRef},
    limits,
};
use tidegate_store::{
    TenantStore,
    read::runs::{RunPlace, RunRow},
};

use super::held::lease_lost;
use crate::{Engine, Error, Principal, conversations::messages::view};

/// The latest messages of earlier turns and of this one (none for a run that is no turn), the effects of earlier attempts
/// with the messages that led to them (R4.5), the run's children, and what people have answered.
pub async fn context(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: ContextRequest,
) -> Result<ContextAnswer, Error> {
    if !(1..=limits::PAGE_MAX).contains(&request.limit) {
        return Err(Error::invalid(
            "limit",
            format!("1 to {}", limits::PAGE_MAX),
        ));
    }
    let lease = engine
        .held_one(
            principal,
            LeaseRef {
                run_id,
                fence: request.fence,
            },
        )
        .await?;
    let fleet = engine.store().fleet();
    if !fleet
        .is_held(&engine.settings().execution_scope, &lease)
        .await?
    {
        return Err(lease_lost());
    }
    let store = engine.store().tenant(&lease.key.tenant);
    let effects = store.effects(run_id).await?;
    let earlier = if effects.is_empty() {
        Vec::new()
    } else {
        store.earlier_messages(run_id).await?
    };
    let messages = store
        .turn_context(run_id, i64::from(request.limit))
        .await?
        .into_iter()
        .map(view)
        .collect();
    Ok(ContextAnswer {
        messages,
        effects,
        earlier,
        children: children(&store, run_id, request.children.as_deref()).await?,
        inputs: store.inputs(run_id).await?,
    })
}

/// The run's children with where they are; results as far as they fit.
async fn children(
    store: &TenantStore,
    run_id: RunId,
    only: Option<&[RunId]>,
) -> Result<Vec<ChildView>, Error> {
    let mut kin = store.descendants(run_id, false).await?;
    if let Some(only) = only {
        kin.retain(|kin| only.contains(&kin.run_id));
        kin.sort_by_key(|kin| only.iter().position(|run| *run == kin.run_id));
    }
    if kin.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<RunId> = kin.iter().map(|kin| kin.run_id).collect();
    let rows = store.runs(&ids).await?;
    let mut rows: HashMap<RunId, RunRow> = rows.into_iter().map(|row| (row.run_id, row)).collect();
    let results = store.results(&ids).await?;
    let mut results: HashMap<RunId, Option<serde_json::Value>> = results
        .into_iter()
        .map(|result| (result.run_id, result.result))
        .collect();
    Ok(kin
        .into_iter()
        .filter_map(|kin| {
            let row = rows.remove(&kin.run_id)?;
            let state = row.state();
            let (code, detail) = match row.place {
                RunPlace::Ended(ended) => (ended.code, ended.detail),
                _ => (None, None),
            };
            // A child that ended between the two reads shows its state, and its result the next time.
            let result = results.remove(&kin.run_id).filter(|_| state.is_ended());
            Some(ChildView {
                run_id: kin.run_id,
                key: kin.key,
                capability: row.capability,
                state,
                code,
                retryable: code.map(tidegate_model::Code::retryable),
                detail,
                result_omitted: matches!(result, Some(None)),
                result: result.flatten(),
            })
        })
        .collect())
}
