//! `POST /v1/admissions/{admissionId}/verify`: whether a grant may be consumed now (R9.1).
//!
//! The signature says that it was granted; whether it still holds is asked of the ledger and of the pool, so that an ended
//! admission, an older fence, a grant that was given back and a withdrawn epoch are refused at once.

use chrono::Duration;
use tidegate_grants::Demand;
use tidegate_model::{
    AdmissionId,
    api::{GrantVerdict, VerifyGrant},
    principal::Role,
};
use tidegate_policy::ledger::life;

use crate::{
    Engine, Error, Principal,
    grants::{self, VerifyError},
};

/// How long a verdict may be relied on.
const FRESH: Duration = Duration::seconds(1);

/// Checks a grant of an admission of the caller's tenant.
pub async fn verify(
    engine: &Engine,
    principal: &Principal,
    id: AdmissionId,
    request: VerifyGrant,
) -> Result<GrantVerdict, Error> {
    principal.require_role(&[Role::Coordinator])?;
    let tenant = principal.require_tenant()?.clone();
    let store = engine.store().tenant(&tenant);
    let Some(admission) = store.admission(id).await? else {
        return Err(Error::not_found("admission"));
    };
    let standing = store.standing(&admission).await?;
    let valid_until = standing.now + FRESH;
    let refused = |reason: &str, detail: String| GrantVerdict {
        valid: false,
        reason: Some(reason.to_owned()),
        detail: Some(detail),
        valid_until,
    };
    // Its fence is held against the admission below, where an end is told from a later phase.
    let demand = Demand::of(request.resource.clone(), request.amount, request.calls);
    let verified = match grants::verify(engine, &request.grant.0, &demand).await {
        Ok(verified) => verified,
        Err(VerifyError::Problem(problem)) => {
            return Ok(refused(problem.word(), problem.to_string()));
        }
        Err(VerifyError::Engine(error)) => return Err(error),
    };
    let claims = &verified.claims().grant;
    if claims.admission_id != id || claims.tenant_id != tenant {
        let detail = "the grant is of another admission".to_owned();
        return Ok(refused("other_admission", detail));
    }
    let over = standing.now >= admission.expires_at || !standing.generation_holds;
    if let Err(refusal) = life::may_change(admission.state, admission.fence, claims.fence, over) {
        let (reason, detail) = match refusal {
            life::Refusal::Ended | life::Refusal::TimeOut => {
                ("admission_ended", "the admission is over")
            }
            life::Refusal::Fence => ("fence_stale", "a later phase of the admission is in force"),
        };
        return Ok(refused(reason, detail.to_owned()));
    }
    if !standing.epoch_holds {
        let detail = "the pool's descriptor epoch was withdrawn".to_owned();
        return Ok(refused("epoch_withdrawn", detail));
    }
    let names = engine
        .resource_names(admission.grants.iter().map(|grant| grant.resource))
        .await?;
    let held = admission
        .grants
        .iter()
        .find(|grant| names.get(&grant.resource) == Some(&request.resource))
        .map_or(0, |grant| grant.held);
    if u64::try_from(held).unwrap_or(0) < request.amount {
        let detail = format!("{held} of {} are held now", request.resource);
        return Ok(refused("given_back", detail));
    }
    Ok(GrantVerdict {
        valid: true,
        reason: None,
        detail: None,
        valid_until: valid_until.min(verified.claims().ends_at()),
    })
}
