//! `POST /v1/runs/{id}/resolve`: what a person found out about a run in review (R4.5).

use tidegate_model::{
    Code, RunId,
    api::{ResolveRun, RunView},
    effect::ReviewVerdict,
    limits,
    run::RunState,
};
use tidegate_store::attempts::resolve::{Resolution, Resolved};

use crate::{Engine, Error, Principal};

/// Takes a verdict; the first of several is taken.
pub async fn resolve(
    engine: &Engine,
    principal: &Principal,
    run: RunId,
    request: ResolveRun,
) -> Result<RunView, Error> {
    check(&request)?;
    let before = super::get::get(engine, principal, run).await?;
    let tenant = engine.store().tenant(principal.require_tenant()?);
    let resolution = Resolution {
        run_id: run,
        verdict: request.verdict,
        call_id: request.call_id,
        note: request.note,
        by: principal.author(),
    };
    match tenant
        .resolve_review(resolution, engine.queue_max_age_ms())
        .await?
    {
        Resolved::Done => {
            engine.events().nudge(tenant.tenant(), run);
            engine.work_changed();
        }
        Resolved::Left(_) => engine.events().nudge(tenant.tenant(), run),
        Resolved::NotInReview => {
            return Err(Error::refused(
                Code::StateConflict,
                match before.state {
                    RunState::Review => {
                        "somebody else resolved or cancelled the run first; look at it again"
                            .to_owned()
                    }
                    state => format!("the run is {state}; only a run in review can be resolved"),
                },
            ));
        }
        Resolved::NoSuchEffect => {
            return Err(Error::invalid(
                "callId",
                "not one of the effects in question; `tidegate run get` shows them",
            ));
        }
    }
    let view = super::get::get(engine, principal, run).await?;
    Ok(RunView {
        repeated: principal.is_replayed(),
        ..view
    })
}

fn check(request: &ResolveRun) -> Result<(), Error> {
    if request.verdict == ReviewVerdict::Abandon && request.call_id.is_some() {
        return Err(Error::invalid(
            "callId",
            "a run is abandoned as a whole; leave it out",
        ));
    }
    let Some(note) = &request.note else {
        return Ok(());
    };
    if note.chars().count() > limits::NOTE_MAX_CHARS || note.contains('\0') {
        return Err(Error::invalid(
            "note",
            format!("at most {} characters, without NUL", limits::NOTE_MAX_CHARS),
        ));
    }
    Ok(())
}
