//! What a holder does with its admission: renew, end a phase, give back (R7.5, R10.1).

use std::collections::HashSet;

use tidegate_model::{
    AdmissionId,
    api::{AdmissionView, EndPhase, ReleaseAdmission, RenewAdmission, Settlement},
    contracts::{Estimates, GrantId},
    principal::Role,
};
use tidegate_store::ledger::{
    AdmissionKey,
    batch::{Ask, Change, Outcome},
};

use super::{
    TTL_MS,
    admit::{Terms, missing, task_of, unsatisfiable, wanted},
    answered, check_ttl, decide, refusal,
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
    let mut impossible = None;
    let next = match request.next {
        None => None,
        Some(requirements) => {
            let task = task_of(principal, requirements).map_err(of_next)?;
            let pools = engine.pools_now().await?;
            let sorted = pools.sort(&task);
            impossible = if sorted.is_satisfiable() {
                missing(engine, &sorted, &task).await.err()
            } else {
                Some(unsatisfiable(&sorted))
            };
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
    if let Outcome::Refused(refused) = answer.outcome {
        let error = match impossible {
            Some(error) => error,
            None => refusal(engine, refused).await?,
        };
        return Err(over(error));
    }
    answered(engine, answer).await
}

/// The same error of what is wanted next, where it stands in the request.
fn of_next(mut error: Error) -> Error {
    if let Error::Refused(refusal) = &mut error
        && let Some(field) = &mut refusal.field
    {
        *field = field.replacen("requirements", "next", 1);
    }
    error
}

/// A next phase that was refused has ended its admission: trying again takes a new one.
fn over(mut error: Error) -> Error {
    if let Error::Refused(refusal) = &mut error {
        refusal.detail = String::from(
            "the next phase was refused, and the admission is released with all that it held; `reasons` say why, and \
                          another try takes a new id",
        );
        refusal.field = Some("next".to_owned());
        refusal.retry_after_ms = None;
    }
    error
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
    let mut seen = HashSet::new();
    given
        .enumerate()
        .map(|(at, grant)| {
            if !seen.insert(grant.index) {
                return Err(Error::invalid(
                    place_of(field, at),
                    format!("{grant} is named twice"),
                ));
            }
            if grant.admission == id {
                return Ok(grant.index);
            }
            Err(Error::invalid(
                place_of(field, at),
                format!("{grant} belongs to another admission"),
            ))
        })
        .collect()
}

fn place_of(field: &str, at: usize) -> String {
    // What is given back is named by its id alone.
    let member = if field == "settle" { ".grantId" } else { "" };
    format!("{field}[{at}]{member}")
}
