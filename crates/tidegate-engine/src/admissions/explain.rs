//! `POST /v1/admissions/explain`: the whole decision without reserving anything (R6.5).

use std::collections::BTreeSet;

use tidegate_model::{
    Code,
    api::{AdmissionExplanation, ExplainAdmission, PoolVerdict},
    digest::canonical_digest,
    principal::Role,
};
use tidegate_policy::{
    eligibility,
    ledger::{Book, Shortage, Vector},
};

use super::{
    admit::{missing, task_of},
    short_views,
};
use crate::{Engine, Error, Principal};

/// Says what an admission would meet: every pool with every clause that it fails and every resource that is short.
pub async fn explain(
    engine: &Engine,
    principal: &Principal,
    request: ExplainAdmission,
) -> Result<AdmissionExplanation, Error> {
    principal.require_role(&[Role::Coordinator, Role::TenantAdmin, Role::Member])?;
    let task = task_of(principal, request.requirements)?;
    let pools = engine.pools_now().await?;
    let sorted = pools.sort(&task);
    missing(engine, &sorted, &task).await?;
    let resources = engine.resources().await?;
    let mut vectors = Vec::new();
    for pool in &sorted.eligible {
        if let Ok(vector) = resources.vector(&task, pool) {
            vectors.push((pool.clone(), vector));
        }
    }
    let parts = vectors.iter().flat_map(|(_, vector)| vector.parts());
    let wanted: BTreeSet<i32> = parts.map(|part| part.resource).collect();
    let wanted: Vec<i32> = wanted.into_iter().collect();
    let scope = &engine.settings().execution_scope;
    let (ledger_version, counters) = engine.store().look_at_ledger(scope, &wanted).await?;
    let names = engine.resource_names(wanted).await?;
    let book = Book::new(counters);
    let all: Vec<&Vector> = vectors.iter().map(|(_, vector)| &**vector).collect();
    let chosen = book.choose(&all, None, engine.settings().routing_score);
    let lacks: Vec<Vec<Shortage>> = all.iter().map(|vector| book.short(vector, None)).collect();
    let mut verdicts: Vec<PoolVerdict> = vectors
        .iter()
        .zip(&lacks)
        .map(|((pool, _), short)| PoolVerdict {
            pool_id: pool.clone(),
            admits: short.is_empty(),
            blocked_by: Vec::new(),
            short: short_views(&names, short),
        })
        .collect();
    verdicts.extend(sorted.refused.iter().map(|refused| PoolVerdict {
        pool_id: refused.pool.clone(),
        admits: false,
        blocked_by: refused.reasons().collect(),
        short: Vec::new(),
    }));
    let advice = advise(&verdicts, chosen.as_ref().ok().copied(), &sorted.refused);
    Ok(AdmissionExplanation {
        admits: chosen.is_ok(),
        code: advice.code,
        nearest: advice.nearest,
        remedy: advice.remedy,
        pools: verdicts,
        requirement_digest: canonical_digest(&task).map_err(|_| Error::Internal {
            what: "requirements have no canonical form",
        })?,
        ledger_version,
    })
}

struct Advice {
    code: Option<Code>,
    nearest: Option<tidegate_model::PoolId>,
    remedy: Option<String>,
}

/// The pool that comes nearest, and the smallest change that would admit there: one that is only short of something
/// before one that fails a clause, and the fewest of either.
fn advise(
    verdicts: &[PoolVerdict],
    chosen: Option<usize>,
    refused: &[eligibility::RefusedPool],
) -> Advice {
    if let Some(pool) = chosen.and_then(|at| verdicts.get(at)) {
        return Advice {
            code: None,
            nearest: Some(pool.pool_id.clone()),
            remedy: None,
        };
    }
    let short = verdicts.iter().filter(|pool| !pool.short.is_empty());
    let nearest = short.min_by_key(|pool| {
        let never = pool.short.iter().filter(|short| short.never).count();
        (never, pool.short.len())
    });
    if let Some(pool) = nearest {
        let never = pool.short.iter().any(|short| short.never);
        let changes: Vec<String> = pool
            .short
            .iter()
            .map(|short| {
                let lacks = short.needed - short.free;
                if short.never {
                    format!(
                        "raise the capacity of {} to {}, or ask for at most {}",
                        short.resource, short.needed, short.capacity
                    )
                } else {
                    format!("wait until {lacks} more of {} comes free", short.resource)
                }
            })
            .collect();
        return Advice {
            code: Some(if never {
                Code::Unsatisfiable
            } else {
                Code::ResourceExhausted
            }),
            nearest: Some(pool.pool_id.clone()),
            remedy: Some(changes.join("; ")),
        };
    }
    let nearest = eligibility::nearest(refused);
    Advice {
        code: Some(Code::Unsatisfiable),
        nearest: nearest.map(|pool| pool.pool.clone()),
        remedy: Some(nearest.map_or_else(
            || "publish a pool that offers the capability".to_owned(),
            |pool| {
                let all: Vec<&str> = pool.reasons().map(eligibility::remedy).collect();
                all.join("; ")
            },
        )),
    }
}
