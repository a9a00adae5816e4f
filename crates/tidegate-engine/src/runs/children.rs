//! `GET /v1/runs/{id}/children`: the tree below a run.

use std::collections::HashMap;

use tidegate_model::{
    Code, RunId,
    api::{RunTree, TreeRun},
};
use tidegate_store::read::runs::{RunPlace, RunRow};

use crate::{Engine, Error, Principal};

/// All descendants of a run of the caller's tenant.
pub async fn tree(engine: &Engine, principal: &Principal, run: RunId) -> Result<RunTree, Error> {
    let store = engine.store().tenant(principal.require_tenant()?);
    if store.run(run).await?.is_none() {
        return Err(Error::not_found("run"));
    }
    let kin = store.descendants(run, true).await?;
    let ids: Vec<RunId> = kin.iter().map(|kin| kin.run_id).collect();
    let rows = store.runs(&ids).await?;
    let mut rows: HashMap<RunId, RunRow> = rows.into_iter().map(|row| (row.run_id, row)).collect();
    let items = kin.into_iter().filter_map(|kin| {
        let row = rows.remove(&kin.run_id)?;
        let (code, ended_at) = ending(&row);
        Some(TreeRun {
            run_id: kin.run_id,
            parent_run_id: kin.parent_run_id,
            depth: kin.depth,
            key: kin.key,
            state: row.state(),
            capability: row.capability,
            code,
            created_at: kin.created_at,
            ended_at,
        })
    });
    Ok(RunTree {
        run_id: run,
        items: items.collect(),
    })
}

fn ending(row: &RunRow) -> (Option<Code>, Option<chrono::DateTime<chrono::Utc>>) {
    match &row.place {
        RunPlace::Ended(ended) => (ended.code, Some(ended.ended_at)),
        _ => (None, None),
    }
}
