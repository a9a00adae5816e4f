//! What a holder does with its admission: renew, end a phase, give back (R7.5, R10.1).

use tidegate_model::{
    AdmissionId,
    api::{AdmissionView, EndPhase, ReleaseAdmission, RenewAdmission, Settlement},
    contracts::{Estimates, GrantId},
    principal::Role,
};
use tidegate_store::ledger::{
    AdmissionKey,
    batch::{Ask, Change},
};

use super::{
    TTL_MS,
    admit::{Terms, missing, task_of, unsatisfiable, wanted},
    answered, check_ttl, decide,
};
use crate::{Engine, Error, Principal};

/// The most grants that one call names.
const GRANTS_MAX: usize = 1_000;

/// Gives an admission more time.
pub async fn renew(
    engine: &Engine,
    principal: &Principal,
    id: AdmissionId,
    request: RenewAdmission,
) -> Result<AdmissionView, Error> {
    let key = key_of(principal, id)?;
    check_ttl(request.ttl_ms)?;
    let change = Change::Renew(request.ttl_ms);
    let answer = decide(engine, Ask::Change(key, request.fence, change)).await?;
    answered(engine, answer).await
}

/// Gives an admission back.
pub async fn release(
    engine: &Engine,
    principal: &Principal,
    id: AdmissionId,
    request: ReleaseAdmission,
) -> Result<AdmissionView, Error> {
    let key = key_of(principal, id)?;
    let change = Change::Release(settlements(id, &request.settle)?);
    let answer = decide(engine, Ask::Change(key, request.fence, change)).await?;
    given_back(engine);
    answered(engine, answer).await
}

/// Ends a phase, and admits the next one where it names one.
pub async fn end_phase(
    engine: &Engine,
    principal: &Principal,
    id: AdmissionId,
    request: EndPhase,
) -> Result<AdmissionView, Error> {
    let key = key_of(principal, id)?;
    let settle = settlements(id, &request.settle)?;
    let release = places(id, "release", request.release.iter().copied())?;
    let next = match request.next {
        None => None,
        Some(requirements) => {
            let task = task_of(principal, requirements).map_err(|error| error.within("next"))?;
            let pools = engine.pools_now().await?;
            let sorted = pools.sort(&task);
            if !sorted.is_satisfiable() {
                return Err(unsatisfiable(&sorted));
            }
            missing(engine, &sorted, &task).await?;
            let terms = Terms {
                ttl_ms: TTL_MS,
                if_version: None,
            };
            Some(wanted(engine, &pools, &task, terms).await?)
        }
    };
    let change = Change::EndPhase {
        settle,
        release,
        next,
    };
    let answer = decide(engine, Ask::Change(key, request.fence, change)).await?;
    given_back(engine);
    answered(engine, answer).await
}

/// Claims that found a resource short look again.
fn given_back(engine: &Engine) {
    engine.resources_changed();
}

fn key_of(principal: &Principal, id: AdmissionId) -> Result<AdmissionKey, Error> {
    principal.require_role(&[Role::Coordinator])?;
    Ok(AdmissionKey {
        tenant: principal.require_tenant()?.clone(),
        id,
    })
}

fn settlements(id: AdmissionId, given: &[Settlement]) -> Result<Vec<(u16, i64)>, Error> {
    for (at, one) in given.iter().enumerate() {
        if !(0..=Estimates::MAX).contains(&one.amount) {
            return Err(Error::invalid(
                format!("settle[{at}].amount"),
                format!("{} is out of bounds: 0 to {}", one.amount, Estimates::MAX),
            ));
        }
    }
    let named = places(id, "settle", given.iter().map(|one| one.grant_id))?;
    Ok(named
        .into_iter()
        .zip(given.iter().map(|one| one.amount))
        .collect())
}

fn places(
    id: AdmissionId,
    field: &str,
    given: impl ExactSizeIterator<Item = GrantId>,
) -> Result<Vec<u16>, Error> {
    if given.len() > GRANTS_MAX {
        return Err(Error::invalid(
            field,
            format!("{} entries; at most {GRANTS_MAX}", given.len()),
        ));
    }
    given
        .enumerate()
        .map(|(at, grant)| {
            if grant.admission == id {
                return Ok(grant.index);
            }
            Err(Error::invalid(
                format!("{field}[{at}].grantId"),
                format!("{grant} belongs to another admission"),
            ))
        })
        .collect()
}
