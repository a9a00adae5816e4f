//! `POST /v1/worker/runs/{id}/wait`: the attempt ends and holds nothing; the run comes back when what it waits for is there
//! (R3.13, R3.15).

use chrono::{DateTime, Utc};
use tidegate_model::{
    Code, RunId,
    api::{AttemptAnswer, LeaseRef, WaitForChildren, WaitRun},
    limits,
    run::{WaitMode, WaitOn},
};
use tidegate_policy::{retry::Report, waitgraph::check_ask};
use tidegate_store::attempts::{HeldLease, waits::Wait};

use super::close::{Ending, attempt_messages, or_repeated};
use crate::{Engine, Error, Principal, checks, runs::accept::refuse_unstorable};

/// Closes the attempt as waiting; a run whose wait is over already is queued at once.
pub async fn wait(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: WaitRun,
) -> Result<AttemptAnswer, Error> {
    check(&request)?;
    let lease = LeaseRef {
        run_id,
        fence: request.fence,
    };
    let waiting = Box::pin(hand_back(engine, principal, lease, request)).await;
    or_repeated(engine, principal, lease, Report::Waiting, waiting).await
}

async fn hand_back(
    engine: &Engine,
    principal: &Principal,
    lease: LeaseRef,
    request: WaitRun,
) -> Result<AttemptAnswer, Error> {
    let held = engine.held_one(principal, lease).await?;
    if held.fence.number > limits::LEASES_BEFORE_WAIT_MAX {
        return Err(Error::refused(
            Code::BudgetExhausted,
            format!(
                "the run has been woken {} times; let it end, or start another one",
                limits::LEASES_BEFORE_WAIT_MAX
            ),
        ));
    }
    let wait = match (request.children, request.input) {
        (Some(children), _) => on_children(engine, &held, children, request.until).await?,
        (None, Some(ask)) => {
            let value =
                serde_json::to_value(&ask).map_err(|_| Error::Internal { what: "a question" })?;
            refuse_unstorable("input", &value)?;
            check_ask(&ask).map_err(|(field, detail)| Error::invalid(field, detail))?;
            Wait {
                on: WaitOn::Input,
                mode: WaitMode::Any,
                runs: Vec::new(),
                ask: Some(ask),
                until: request.until,
            }
        }
        (None, None) => Wait {
            on: WaitOn::Time,
            mode: WaitMode::Any,
            runs: Vec::new(),
            ask: None,
            until: request.until,
        },
    };
    let messages = attempt_messages(request.messages)?;
    Ending {
        lease,
        tokens: request.usage.tokens,
        detail: None,
        result: None,
        messages,
        wait: Some(wait),
    }
    .close_once(engine, principal, Report::Waiting)
    .await
}

fn check(request: &WaitRun) -> Result<(), Error> {
    if request.children.is_some() && request.input.is_some() {
        return Err(Error::invalid(
            "input",
            "a run waits on children or on a person, not on both; ask first, or wait for the children first",
        ));
    }
    if request.children.is_none() && request.input.is_none() && request.until.is_none() {
        return Err(Error::invalid(
            "$",
            "say what to wait for: children, input or until",
        ));
    }
    checks::time("until", request.until, limits::HORIZON_MAX_MS)
}

async fn on_children(
    engine: &Engine,
    held: &HeldLease,
    asked: WaitForChildren,
    until: Option<DateTime<Utc>>,
) -> Result<Wait, Error> {
    let fleet = engine.store().fleet();
    let runs = fleet.awaitable(held, asked.runs.as_deref()).await?;
    let named = asked.runs.as_deref().unwrap_or_default();
    if let Some(unknown) = named.iter().position(|run| !runs.contains(run)) {
        return Err(Error::invalid(
            format!("children.runs[{unknown}]"),
            "no child of this run",
        ));
    }
    if runs.is_empty() {
        return Err(Error::invalid(
            "children",
            "the run has no child that it could wait for: all had ended when this attempt began; read them in the context",
        ));
    }
    Ok(Wait {
        on: WaitOn::Children,
        mode: asked.mode.unwrap_or(WaitMode::Any),
        runs,
        ask: None,
        until,
    })
}
