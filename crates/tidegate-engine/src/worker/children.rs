//! `POST /v1/worker/runs/{id}/children`: the only way to a run of kind `child` (R3.2, R3.13).

use tidegate_model::{
    Code, RunId,
    api::{ChildAccepted, LeaseRef, SubmitChild},
    contracts::{Needs, TaskRequirements},
    limits,
    pool_reason::PoolReason,
    run::{QuotaBucket, RunKind},
};
use tidegate_policy::{
    delegation::{self, ForeignRegion},
    eligibility::{self, Eligibility},
    waitgraph::ChildAsk,
};
use tidegate_store::{
    attempts::HeldLease,
    lanes::LaneKey,
    runs::{NewChild, Place, SubmittedChild},
};

use super::held::lease_lost;
use crate::{
    Engine, Error, Principal,
    claims::LaneHint,
    runs::accept::{Wanted, check_bounds, class_of, refuse_no_prompt},
};

/// Starts a child of a leased run. A refusal is told at once, with its code: the parent goes on by its own logic and
/// nothing waits for what never was (O-07).
pub async fn submit_child(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: SubmitChild,
) -> Result<ChildAccepted, Error> {
    let lease = LeaseRef {
        run_id,
        fence: request.fence,
    };
    check(&request)?;
    let Some(parent) = engine.held(principal, &[lease]).await?.remove(&run_id) else {
        return Err(ended_or_lost(engine, principal, lease).await?);
    };
    let (child, of_background) = new_child(engine, &parent, request).await?;
    let child_id = child.run_id;
    let lane = LaneKey {
        bucket: QuotaBucket::Uncounted,
        tenant: parent.key.tenant.clone(),
        class: child.class,
    };
    let capability = child.capability.clone();
    let submitted = engine.store().fleet().submit_child(parent, child).await?;
    match submitted {
        SubmittedChild::Accepted { place, priority } => {
            engine.in_trees().insert(run_id, ());
            if place == Place::Queued && of_background {
                // Which lanes are of background descent is learned by reading them.
                engine.work_changed();
            } else if place == Place::Queued {
                let hint = LaneHint {
                    lane,
                    capability,
                    place: (1, -priority),
                    created_ms: crate::clock::now().timestamp_millis(),
                };
                engine.work_moved(&[hint], &[]);
            }
            metrics::counter!("tidegate_children_total", "outcome" => "accepted").increment(1);
            Ok(ChildAccepted {
                run_id: child_id,
                repeated: false,
            })
        }
        SubmittedChild::Repeated(run_id) => Ok(ChildAccepted {
            run_id,
            repeated: true,
        }),
        SubmittedChild::LeaseLost => Err(ended_or_lost(engine, principal, lease).await?),
        refused => {
            metrics::counter!("tidegate_children_total", "outcome" => "refused").increment(1);
            Err(refusal(refused))
        }
    }
}

fn check(request: &SubmitChild) -> Result<(), Error> {
    let fits = (1..=limits::CHILD_KEY_MAX_BYTES).contains(&request.key.len());
    if !fits || !request.key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Error::invalid(
            "key",
            format!(
                "1 to {} printable ASCII characters without spaces, the child's name within its parent",
                limits::CHILD_KEY_MAX_BYTES
            ),
        ));
    }
    if request
        .priority
        .is_some_and(|priority| !(-limits::PRIORITY_MAX..=limits::PRIORITY_MAX).contains(&priority))
    {
        let most = limits::PRIORITY_MAX;
        return Err(Error::invalid("priority", format!("-{most} to {most}")));
    }
    check_bounds(&Wanted {
        kind: RunKind::Child,
        capability: request.capability.clone(),
        needs: request.requirements.clone().unwrap_or_default(),
        input: request.input.clone(),
        service_class: request.service_class,
        priority: request.priority,
        deadline: request.deadline,
        run_at: request.run_at,
        max_attempts: request.max_attempts,
        budget: request.budget.unwrap_or_default(),
        turn: None,
        user: None,
        idempotency_key: None,
        request_digest: [0; 32],
    })
}

async fn new_child(
    engine: &Engine,
    parent: &HeldLease,
    request: SubmitChild,
) -> Result<(NewChild, bool), Error> {
    // The fence is another one in each attempt and no part of what the child is.
    let digest = {
        let mut body = serde_json::to_value(&request).map_err(|_| Error::Internal {
            what: "a child's body",
        })?;
        if let Some(fields) = body.as_object_mut() {
            fields.remove("fence");
        }
        engine.body_digest(&format!("children/{}", parent.key.run_id), &body)?
    };
    let parentage = engine
        .store()
        .fleet()
        .parentage(&parent.key.tenant, parent.key.run_id)
        .await?
        .ok_or_else(lease_lost)?;
    let settings = engine.settings();
    let budget = request.budget.unwrap_or_default();
    let needs = child_needs(
        engine,
        parentage.class,
        request.requirements.unwrap_or_default(),
    );
    let task = TaskRequirements::new(parent.key.tenant.clone(), request.capability, needs.await?);
    let pools = engine.eligible(&task).await?;
    refuse_no_prompt(pools.is_builtin_only(), &request.input)?;
    let unservable = unservable(&task, &pools);
    let child = NewChild {
        run_id: RunId::new(),
        class: class_of(engine, &task, parentage.children_of_background).await?,
        key: request.key,
        capability: task.capability,
        request_digest: digest,
        ask: ChildAsk {
            service_class: request.service_class,
            priority: request.priority,
            deadline: request.deadline,
            tokens: budget.tokens,
            ms: budget.execution_ms,
        },
        max_attempts: request.max_attempts.unwrap_or_else(|| {
            i32::try_from(settings.max_attempts).unwrap_or(limits::ATTEMPTS_MAX)
        }),
        backoff_base_ms: i64::from(settings.backoff_base_ms),
        backoff_max_ms: i64::from(settings.backoff_max_ms),
        run_at: request.run_at,
        input: request.input,
        queue_max_age_ms: engine.queue_max_age_ms(),
        unservable,
    };
    Ok((child, parentage.children_of_background))
}

/// What a child needs, its parent's class being known.
async fn child_needs(engine: &Engine, parent: i32, asked: Needs) -> Result<Needs, Error> {
    engine.requirements(&[parent]).await?;
    // Of a parent whose requirements this release cannot read nobody knows where its data may go.
    let task = engine.requirements_of(parent).ok_or_else(|| {
        Error::refused(
            Code::Unsatisfiable,
            "the requirements of the parent are of a contract version that this server does not know; upgrade it",
        )
    })?;
    delegation::of_child(asked, &task.needs).map_err(|ForeignRegion(region)| {
        Error::refused_field(
            Code::DelegationExceedsParent,
            Some("requirements.allowedRegions"),
            format!(
                "the parent may not go to region {region}; leave it out of allowedRegions, or leave allowedRegions out to have \
                 the parent's"
            ),
        )
    })
}

/// Why no pool may serve a child, where none may.
fn unservable(task: &TaskRequirements, pools: &Eligibility) -> Option<String> {
    if pools.is_satisfiable() {
        return None;
    }
    let capability = &task.capability;
    Some(match eligibility::nearest(&pools.refused) {
        None => format!(
            "no active pool offers {capability}; publish one that does, or ask for another capability"
        ),
        Some(pool) => {
            let reasons: Vec<&str> = pool.reasons().map(PoolReason::as_str).collect();
            format!(
                "no active pool that offers {capability} meets the requirements; {} lacks least: {}",
                pool.pool,
                reasons.join(", ")
            )
        }
    })
}

fn refusal(submitted: SubmittedChild) -> Error {
    match submitted {
        SubmittedChild::Conflict => Error::refused(
            Code::IdempotencyConflict,
            "this key names another child of the run; use a new key for a new child",
        ),
        SubmittedChild::ParentStops => parent_ended(),
        SubmittedChild::TenantInactive => Error::refused(
            Code::TenantSuspended,
            "the tenant is suspended or deleted and starts nothing new",
        ),
        SubmittedChild::DeadlinePassed => Error::invalid(
            "deadline",
            "the deadline of the child or of its parent has passed",
        ),
        SubmittedChild::Refused(refusal) => {
            Error::refused_field(refusal.code(), refusal.field(), refusal.detail())
        }
        SubmittedChild::Unservable(clause) => Error::refused(Code::Unsatisfiable, clause),
        SubmittedChild::Accepted { .. }
        | SubmittedChild::Repeated(_)
        | SubmittedChild::LeaseLost => Error::Internal {
            what: "a child that was accepted was refused",
        },
    }
}

/// Why there is no lease: the run has ended under this fence, or somebody else holds it.
async fn ended_or_lost(
    engine: &Engine,
    principal: &Principal,
    lease: LeaseRef,
) -> Result<Error, Error> {
    let pool = principal.require_pool()?;
    let fleet = engine.store().fleet();
    let attempt = fleet.ended_attempt(pool, lease.run_id, lease.fence).await?;
    Ok(if attempt.is_some_and(|attempt| attempt.run_ended) {
        parent_ended()
    } else {
        lease_lost()
    })
}

fn parent_ended() -> Error {
    Error::refused(
        Code::ParentEnded,
        "the run has ended or is to stop, and has no new children",
    )
}
