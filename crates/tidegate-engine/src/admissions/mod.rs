//! The admissions API: coordinators that keep a queue of their own are answered at once, over the same ledger that claims
//! decide over (R7.7).

mod admit;
mod audit;
mod change;
pub mod expire;
mod explain;
mod get;
pub(crate) mod known;
mod resources;
mod verify;

use std::collections::BTreeMap;

use chrono::SubsecRound as _;
use tidegate_model::{
    Code, PoolId,
    admission::{AdmissionState, GrantState},
    api::{AdmissionView, GrantView, ShortageView},
    contracts::{AdmissionGrant, GrantId, GrantToken, GrantedAmount, ResourceName},
    principal::Role,
};
use tidegate_policy::ledger::{Held, Shortage};
use tidegate_store::ledger::{
    Admission,
    batch::{Answer, Ask, Outcome, Refused},
};

pub use admit::admit;
pub use audit::audit_ledger;
pub use change::{end_phase, release, renew};
pub use explain::explain;
pub use get::get_admission;
pub use resources::{get_resource, list_holders, list_resources, put_resource, remove_resource};
pub use verify::verify;

use crate::{
    Engine, Error, Principal,
    combine::{Answers, all_or_each, count},
    grants,
};

/// How long an admission lasts without being renewed, unless it says otherwise, in milliseconds.
const TTL_MS: i64 = 60_000;
/// The shortest and the longest that it may say.
const TTL_BOUNDS_MS: std::ops::RangeInclusive<i64> = 1_000..=3_600_000;
/// After what time it is worth asking again where resources are short, unless their drain is known; spread by the caller.
const RETRY_MS: u64 = 1_000;

fn check_ttl(ttl_ms: Option<i64>) -> Result<(), Error> {
    match ttl_ms {
        Some(ttl_ms) if !TTL_BOUNDS_MS.contains(&ttl_ms) => Err(Error::invalid(
            "ttlMs",
            format!(
                "{ttl_ms} is out of bounds: {} to {}",
                TTL_BOUNDS_MS.start(),
                TTL_BOUNDS_MS.end()
            ),
        )),
        _ => Ok(()),
    }
}

/// Decides a call together with those of the same moment.
async fn decide(engine: &Engine, ask: Ask) -> Result<Answer, Error> {
    let calls = engine.ledger();
    let answer = calls.call(engine, Engine::ledger, batch, ask).await?;
    let outcome = match &answer.outcome {
        Outcome::Done(_) => "done",
        Outcome::Refused(Refused::Short(_)) => "short",
        Outcome::Refused(Refused::Moved) => "moved",
        Outcome::Refused(Refused::Version(_)) => "version",
        Outcome::Refused(Refused::Suspended) => "suspended",
        Outcome::Conflict(_) => "conflict",
        Outcome::Ended(_) => "ended",
        Outcome::Fence => "fenced",
        Outcome::NoGrant(_) | Outcome::Slot(_) | Outcome::Unknown => "unknown",
    };
    metrics::counter!("tidegate_admissions_total", "outcome" => outcome).increment(1);
    Ok(answer)
}

fn batch(engine: Engine, asks: Vec<Ask>) -> Answers<Answer> {
    Box::pin(async move {
        metrics::histogram!("tidegate_ledger_batch_calls").record(count(asks.len()));
        all_or_each(asks, |asks| {
            let engine = engine.clone();
            Box::pin(async move {
                let scope = &engine.settings().execution_scope;
                let answers = engine.store().fleet().ledger_batch(scope, asks).await?;
                Ok(answers)
            })
        })
        .await
    })
}

/// The answer to a call that an admission came of, or the refusal.
async fn answered(engine: &Engine, answer: Answer) -> Result<AdmissionView, Error> {
    match answer.outcome {
        Outcome::Done(admission) => view(engine, admission, answer.version).await,
        Outcome::Refused(refused) => Err(refusal(engine, refused).await?),
        Outcome::Conflict(known) => Err(Error::refused_field(
            Code::AdmissionConflict,
            Some("requirements"),
            format!(
                "admission {} was made with requirements of the digest {}; take a new id for other requirements",
                known.key.id, known.digest
            ),
        )),
        Outcome::Ended(known) => Err(ended(&known)),
        Outcome::Fence => Err(Error::refused_field(
            Code::LeaseLost,
            Some("fence"),
            "the fence is not the admission's; whoever was answered with a later one holds it now",
        )),
        Outcome::NoGrant(place) => Err(Error::invalid(
            "grantId",
            format!("the admission has no grant at place {place}"),
        )),
        Outcome::Slot(place) => Err(Error::invalid(
            "grantId",
            format!(
                "the grant at place {place} is a slot of a pool, a sandbox or a tenant: it is given back with the admission"
            ),
        )),
        Outcome::Unknown => Err(Error::not_found("admission")),
    }
}

/// That an admission is over, and how it ended.
fn ended(known: &Admission) -> Error {
    let how = known.ended.map_or_else(String::new, |(at, reason)| {
        format!(", {} at {}", reason.as_str(), at.to_rfc3339())
    });
    Error::refused(
        Code::AdmissionEnded,
        format!(
            "admission {} is {}{how}; an id is used once, take a new one",
            known.key.id,
            known.state.as_str()
        ),
    )
}

async fn refusal(engine: &Engine, refused: Refused) -> Result<Error, Error> {
    Ok(match refused {
        Refused::Short(pools) => short(engine, &pools).await?,
        // Read anew and judged again before this is said: they keep moving.
        Refused::Moved => Error::refused_until(
            Code::ResourceExhausted,
            "the pools that may serve it were changed meanwhile; send the request again",
            RETRY_MS,
        ),
        Refused::Version(version) => Error::refused_field(
            Code::VersionConflict,
            Some("ifLedgerVersion"),
            format!(
                "the ledger has version {version}; ask for an explanation again, or leave it out"
            ),
        ),
        Refused::Suspended => Error::refused(
            Code::TenantSuspended,
            "the tenant is suspended or deleted: nothing new is admitted",
        ),
    })
}

/// What each pool is short of: contended where waiting can help, never to be met where more is asked for than there is.
async fn short(engine: &Engine, pools: &[(PoolId, Vec<Shortage>)]) -> Result<Error, Error> {
    let all = pools.iter().flat_map(|(_, short)| short);
    let names = engine
        .resource_names(all.map(|short| short.resource))
        .await?;
    let mut reasons = Vec::new();
    for (pool, short) in pools {
        for one in short_views(&names, short) {
            reasons.push(format!(
                "{pool}: {} has {} free of {}, {} asked for",
                one.resource, one.free, one.capacity, one.needed
            ));
        }
    }
    let never = pools
        .iter()
        .all(|(_, short)| short.iter().any(Shortage::is_for_ever));
    let (code, detail, retry_after_ms) = if never {
        (
            Code::Unsatisfiable,
            "more is asked for than there is in any pool that may serve it",
            None,
        )
    } else {
        (
            Code::ResourceExhausted,
            "what it needs is held by others; nothing was reserved, and the same id may be tried again",
            Some(RETRY_MS),
        )
    };
    let mut error = Error::refused(code, detail);
    if let Error::Refused(refusal) = &mut error {
        refusal.reasons = reasons;
        refusal.retry_after_ms = retry_after_ms;
    }
    Ok(error)
}

fn short_views(names: &BTreeMap<i32, ResourceName>, short: &[Shortage]) -> Vec<ShortageView> {
    let views = short.iter().filter_map(|one| {
        Some(ShortageView {
            resource: names.get(&one.resource)?.clone(),
            needed: one.needed,
            free: one.free,
            capacity: one.capacity,
            never: one.is_for_ever(),
        })
    });
    views.collect()
}

/// An admission as it leaves the process for its holder: with the signed grant while it may consume something. Others are not
/// shown one. Who calls from within has no use for it, and the signature costs more than the admission.
pub async fn signed(
    engine: &Engine,
    principal: &Principal,
    mut view: AdmissionView,
) -> Result<AdmissionView, Error> {
    let Some(expires_at) = view
        .expires_at
        .filter(|_| principal.role == Role::Coordinator)
    else {
        return Ok(view);
    };
    let held = view
        .grants
        .iter()
        .filter(|grant| grant.state == GrantState::Held);
    let grant = AdmissionGrant {
        admission_id: view.admission_id,
        tenant_id: principal.require_tenant()?.clone(),
        pool_id: view.pool_id.clone(),
        descriptor_epoch: view.descriptor_epoch,
        policy_generation: view.policy_generation,
        fence: view.fence,
        grants: held
            .map(|grant| GrantedAmount {
                grant_id: grant.grant_id,
                resource: grant.resource.clone(),
                amount: grant.amount,
            })
            .collect(),
        run_id: None,
        issued_at: None,
        // Whole seconds, and never later than the admission ends.
        expires_at: expires_at.trunc_subsecs(0),
    };
    if grant.grants.is_empty() {
        return Ok(view);
    }
    match grants::sign(engine, &grant).await {
        Ok(token) => view.grant = Some(GrantToken(token.as_str().to_owned())),
        // More than a token may name: the admission stands, and its holder asks here and not by a grant.
        Err(error) if error.code() == Code::InvalidArgument => {
            metrics::counter!("tidegate_grants_too_large_total").increment(1);
        }
        Err(error) => return Err(error),
    }
    Ok(view)
}

/// An admission as it is shown.
async fn view(
    engine: &Engine,
    admission: Admission,
    ledger_version: i64,
) -> Result<AdmissionView, Error> {
    let resources = admission.grants.iter().map(|grant| grant.resource);
    let names = engine.resource_names(resources).await?;
    let mut grants = Vec::with_capacity(admission.grants.len());
    for (grant, index) in admission.grants.iter().zip(0..) {
        let resource = names.get(&grant.resource).cloned();
        grants.push(GrantView {
            grant_id: GrantId {
                admission: admission.key.id,
                index,
            },
            resource: resource.ok_or(Error::Internal {
                what: "a resource of an admission has no name",
            })?,
            amount: grant.granted,
            state: grant_state(admission.state, grant),
            settled: grant.settled,
            overuse: grant.is_overused(),
        });
    }
    let is_over = admission.ended.is_some();
    Ok(AdmissionView {
        admission_id: admission.key.id,
        state: admission.state,
        requirement_digest: admission.digest,
        pool_id: admission.pool,
        descriptor_epoch: admission.descriptor_epoch,
        policy_generation: admission.policy_generation,
        fence: admission.fence,
        grants,
        created_at: admission.created_at,
        expires_at: (!is_over).then_some(admission.expires_at),
        ended_at: admission.ended.map(|(at, _)| at),
        end_reason: admission.ended.map(|(_, reason)| reason),
        ledger_version,
        grant: None,
    })
}

fn grant_state(admission: AdmissionState, grant: &Held) -> GrantState {
    match admission {
        AdmissionState::Expired => GrantState::Expired,
        AdmissionState::Released => GrantState::Released,
        _ if grant.held == 0 => GrantState::Released,
        AdmissionState::Preparing => GrantState::Provisional,
        AdmissionState::Active => GrantState::Held,
    }
}
