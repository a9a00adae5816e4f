//! What to do about each cause, as an instruction that can be followed with the command line or the API.

use chrono::{DateTime, SecondsFormat, Utc};

use tidegate_model::run::{AskKind, RunState, WaitMode, WaitOn};

use super::{
    Cause, ConversationBusy, NoEligiblePool, ResourceExhausted, TenantCap, WaitFacts,
    WaitingForWorker,
};
use crate::eligibility;

pub(super) fn remedy(cause: &Cause) -> String {
    match cause {
        Cause::NoEligiblePool(facts) => no_eligible_pool(facts),
        Cause::Scheduled(facts) => format!(
            "starts by itself {1}; to start it now: `tidegate run requeue {0}` (POST /v1/runs/{0}/requeue)",
            facts.run_id,
            at(facts.run_at)
        ),
        Cause::RetryBackoff(facts) => format!(
            "is tried again by itself {3} (attempt {1} of {2}); to try now: `tidegate run requeue {0}` (POST \
             /v1/runs/{0}/requeue)",
            facts.run_id,
            facts.attempts.saturating_add(1),
            facts.max_attempts,
            at(facts.retry_at)
        ),
        Cause::ConversationBusy(facts) => conversation_busy(facts),
        Cause::BackgroundDisabled(_) => {
            "set RUN_EXECUTION_BACKGROUND_CONCURRENCY to 1 or more on an instance and restart it; every live instance \
             has it at 0"
                .to_owned()
        }
        Cause::TenantBackgroundCap(facts) => cap(facts, "background"),
        Cause::TenantForegroundCap(facts) => cap(facts, "foreground"),
        Cause::ResourceExhausted(facts) => resource_exhausted(facts),
        Cause::WaitingForWorker(facts) => waiting_for_worker(facts),
    }
}

fn at(time: Option<DateTime<Utc>>) -> String {
    time.map_or_else(
        || "at its time".to_owned(),
        |time| format!("at {}", time.to_rfc3339_opts(SecondsFormat::Secs, true)),
    )
}

pub(super) fn clause(cause: &Cause) -> String {
    match cause {
        Cause::NoEligiblePool(facts) => {
            let pools: Vec<_> = facts
                .pools
                .iter()
                .map(|refused| format!("{}: {}", refused.pool, refused.reason.as_str()))
                .collect();
            let pools = if pools.is_empty() {
                "there are no pools".to_owned()
            } else {
                pools.join(", ")
            };
            format!("no active pool offers {} ({pools})", facts.capability)
        }
        other => other.code().to_string(),
    }
}

fn no_eligible_pool(facts: &NoEligiblePool) -> String {
    if let Some(pool) = eligibility::nearest(&facts.pools) {
        let changes: Vec<&str> = pool.reasons().map(eligibility::remedy).collect();
        return format!(
            "pool {} lacks least: {}; a descriptor changes by publishing it under a higher epoch, with a key of role \
             pool_controller: `tidegate pool publish FILE --activate`; otherwise the run fails as UNSATISFIABLE {} s after \
             this began",
            pool.pool,
            changes.join(", and "),
            facts.unroutable_grace_ms / 1_000
        );
    }
    format!(
        "publish and activate a pool descriptor that offers {}, with a key of role pool_controller: `tidegate pool \
         publish FILE --activate` (PUT /v1/pools/{{poolId}}/descriptors/{{epoch}}, POST /v1/pools/{{poolId}}/epoch), then \
         start a worker with a key of that pool; otherwise the run fails as UNSATISFIABLE {} s after this began",
        facts.capability,
        facts.unroutable_grace_ms / 1_000
    )
}

fn conversation_busy(facts: &ConversationBusy) -> String {
    let Some(run) = facts.active_run else {
        return "starts by itself when the earlier turn of its conversation has ended".to_owned();
    };
    let first = match facts.active_state {
        Some(RunState::Waiting) => {
            format!(" (it waits: `tidegate run get {run}` says for what, GET /v1/runs/{run})")
        }
        Some(RunState::Review) => {
            format!(" (it is in review: `tidegate run get {run}` says why, GET /v1/runs/{run})")
        }
        _ => String::new(),
    };
    format!(
        "starts by itself when the earlier turn {run} has ended{first}; to end that one: `tidegate run cancel {run}` \
         (POST /v1/runs/{run}/cancel)"
    )
}

pub(super) fn waiting(facts: &WaitFacts<'_>) -> String {
    let run = facts.run_id;
    let goes_on = match facts.on {
        WaitOn::Time => format!("goes on by itself {}", at(facts.until)),
        WaitOn::Input => {
            let answer = match facts.ask {
                Some(AskKind::Confirmation) => "--confirm or --deny",
                Some(AskKind::File) => "--file URI",
                Some(AskKind::Text) | None => "--text TEXT",
            };
            format!("answer it: `tidegate run input {run} {answer}` (POST /v1/runs/{run}/inputs)")
        }
        WaitOn::Children => {
            let which = match (facts.mode, facts.open) {
                (_, [one]) => format!("its child {one} ends"),
                (Some(WaitMode::All), open) => {
                    format!("its {} open children have ended", open.len())
                }
                (_, open) => format!("one of its {} open children ends", open.len()),
            };
            format!(
                "goes on by itself when {which}: `tidegate run children {run}` shows them (GET /v1/runs/{run}/children)"
            )
        }
    };
    let also = match facts.until {
        Some(_) if facts.on != WaitOn::Time => format!(", or by itself {}", at(facts.until)),
        _ => String::new(),
    };
    format!("{goes_on}{also}; to end it: `tidegate run cancel {run}` (POST /v1/runs/{run}/cancel)")
}

fn cap(facts: &TenantCap, bucket: &str) -> String {
    format!(
        "starts when one of the tenant's {} running {bucket} runs ends (cap {}); to end one: `tidegate run list \
         --state running`, then `tidegate run cancel` (GET /v1/runs?state=running, POST /v1/runs/{{id}}/cancel)",
        facts.running, facts.cap
    )
}

fn resource_exhausted(facts: &ResourceExhausted) -> String {
    // The pool that is short of the least.
    let Some(pool) = facts.pools.iter().min_by_key(|pool| pool.short.len()) else {
        return "starts by itself when what it takes comes free".to_owned();
    };
    let all: Vec<String> = pool
        .short
        .iter()
        .map(|short| {
            format!(
                "{} has {} free of {}, a run takes {}",
                short.resource, short.free, short.capacity, short.needed
            )
        })
        .collect();
    let first = pool
        .short
        .first()
        .map_or_else(String::new, |short| short.resource.to_string());
    format!(
        "starts by itself in pool {} when what it takes comes free ({}); `tidegate ledger get {first}` shows who holds it, \
         `tidegate ledger set {first} CAPACITY` gives it more",
        pool.pool,
        all.join("; ")
    )
}

fn waiting_for_worker(facts: &WaitingForWorker) -> String {
    if let Some(tenant) = &facts.suspended_tenant {
        return format!(
            "the tenant is suspended; to let it work: `tidegate tenant resume {tenant}` (POST \
             /v1/admin/tenants/{tenant}/state)"
        );
    }
    let slots: i64 = facts.pools.iter().map(|pool| pool.slots).sum();
    let busy: i64 = facts.pools.iter().map(|pool| pool.busy).sum();
    let names: Vec<_> = facts.pools.iter().map(|pool| pool.pool.as_str()).collect();
    let pools = names.join(", ");
    if slots == 0 {
        format!(
            "start a worker: `tidegate serve --roles chat` for pool builtin, or a worker with a key of one of the \
             pools that may serve it ({pools})"
        )
    } else if busy >= slots {
        format!(
            "starts when one of the {slots} busy slots is free ({pools}); to add slots start another instance or \
             worker, or raise RUN_EXECUTION_CONCURRENCY"
        )
    } else {
        "nothing to do: a worker is free and takes it with its next claim".to_owned()
    }
}
