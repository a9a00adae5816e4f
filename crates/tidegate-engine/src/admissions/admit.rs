//! `POST /v1/admissions`: the whole vector or nothing (R7.1, R7.3).

use tidegate_model::{
    Code,
    api::{AdmissionRequirements, AdmissionView, AdmitRequest},
    contracts::TaskRequirements,
    digest::canonical_digest,
    pool_reason::PoolReason,
    principal::Role,
};
use tidegate_policy::eligibility::{self, Eligibility};
use tidegate_store::ledger::{
    AdmissionKey,
    batch::{Ask, Candidate, Outcome, Refused, Wanted},
};

use super::{TTL_MS, answered, check_ttl, decide, known::Missing};
use crate::{Engine, Error, Principal, pools::PoolsKnown, runs::accept::check_needs};

/// How often pools that have moved are read anew before that is said.
const LOOKS_MAX: usize = 3;

/// Admits what is asked for, or refuses it with its reasons; nothing waits.
pub async fn admit(
    engine: &Engine,
    principal: &Principal,
    request: AdmitRequest,
) -> Result<AdmissionView, Error> {
    principal.require_role(&[Role::Coordinator])?;
    check_ttl(request.ttl_ms)?;
    if engine.is_draining() {
        return Err(Error::refused(
            Code::ShuttingDown,
            "this instance is shutting down; send the request again, another instance will take it",
        ));
    }
    let task = task_of(principal, request.requirements)?;
    let key = AdmissionKey {
        tenant: task.tenant.clone(),
        id: request.admission_id,
    };
    let terms = Terms {
        ttl_ms: request.ttl_ms.unwrap_or(TTL_MS),
        if_version: request.if_ledger_version,
    };
    let mut pools = engine.pools().await?;
    for look in 0..LOOKS_MAX {
        let wanted = wanted(engine, &pools, &task, terms).await?;
        let nowhere = wanted.candidates.is_empty();
        let answer = decide(engine, Ask::Admit(key.clone(), wanted)).await?;
        // What is known by its id is answered whatever the pools are like now; anything else is said of pools as they are.
        let moved = answer.outcome == Outcome::Refused(Refused::Moved);
        if !moved {
            return answered(engine, answer).await;
        }
        if look > 0 && nowhere {
            break;
        }
        pools = engine.pools_now().await?;
    }
    let sorted = pools.sort(&task);
    if sorted.is_satisfiable() {
        missing(engine, &sorted, &task).await?;
        return Err(super::refusal(engine, Refused::Moved).await?);
    }
    Err(unsatisfiable(&sorted))
}

/// How it is to be admitted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) ttl_ms: i64,
    pub(super) if_version: Option<i64>,
}

/// What is asked for, with the caller's tenant (R2.4), checked.
pub(super) fn task_of(
    principal: &Principal,
    requirements: AdmissionRequirements,
) -> Result<TaskRequirements, Error> {
    let tenant = principal.require_tenant()?;
    check_needs(&requirements.needs)?;
    Ok(TaskRequirements::new(
        tenant.clone(),
        requirements.capability,
        requirements.needs,
    ))
}

/// What the ledger is asked for: every pool that may serve it, with what it takes there.
pub(super) async fn wanted(
    engine: &Engine,
    pools: &PoolsKnown,
    task: &TaskRequirements,
    terms: Terms,
) -> Result<Wanted, Error> {
    let resources = engine.resources().await?;
    let mut candidates = Vec::new();
    for pool in pools.sort(task).eligible {
        let Ok(served) = pools.served(&pool) else {
            continue;
        };
        if let Ok(vector) = resources.vector(task, &pool) {
            candidates.push(Candidate {
                epoch: served.epoch(),
                vector: (*vector).clone(),
                pool,
            });
        }
    }
    Ok(Wanted {
        digest: canonical_digest(task).map_err(|_| Error::Internal {
            what: "requirements have no canonical form",
        })?,
        policy_generation: pools.moment().policy_generation,
        candidates,
        scored: engine.settings().routing_score,
        ttl_ms: terms.ttl_ms,
        if_version: terms.if_version,
    })
}

/// Refuses requirements that name what is not there.
pub(super) async fn missing(
    engine: &Engine,
    sorted: &Eligibility,
    task: &TaskRequirements,
) -> Result<(), Error> {
    // What is named is taken in whichever pool.
    let Some(pool) = sorted.eligible.first() else {
        return Ok(());
    };
    match engine.resources().await?.vector(task, pool) {
        Ok(_) => Ok(()),
        Err(Missing::Resource(name)) => Err(Error::refused_field(
            Code::Unsatisfiable,
            Some("requirements.resources"),
            format!(
                "there is no resource {name}; an operator makes it with `tidegate ledger set {name} CAPACITY`"
            ),
        )),
        Err(Missing::Overflow) => Err(Error::invalid(
            "requirements.resources",
            "the amounts fit into no counter",
        )),
    }
}

/// That no pool may serve it, with every reason of each.
pub(super) fn unsatisfiable(sorted: &Eligibility) -> Error {
    let nearest = eligibility::nearest(&sorted.refused).map_or_else(
        || "publish a pool that offers the capability".to_owned(),
        |pool| {
            format!(
                "pool {} comes nearest: {}",
                pool.pool,
                eligibility::remedy(pool.reason)
            )
        },
    );
    let mut error = Error::refused(
        Code::Unsatisfiable,
        format!("no pool may serve these requirements; {nearest}"),
    );
    if let Error::Refused(refusal) = &mut error {
        refusal.reasons = sorted
            .refused
            .iter()
            .map(|pool| {
                let reasons: Vec<&str> = pool.reasons().map(PoolReason::as_str).collect();
                format!("{}: {}", pool.pool, reasons.join(", "))
            })
            .collect();
    }
    error
}
