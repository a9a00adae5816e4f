//! `POST /v1/worker/runs/{id}/events`: the holder numbers, the database refuses doubles and gaps (R4.6).

use serde_json::Value;
use tidegate_model::{
    RunId,
    api::{AppendEvents, LeaseRef, NewEvent},
    event::EventKind,
    limits,
};
use tidegate_store::events::Appended;

use super::held::lease_lost;
use crate::{Engine, Error, Principal, runs::accept::refuse_unstorable};

/// Appends events; the same ones sent twice are written once.
pub async fn append(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: AppendEvents,
) -> Result<(), Error> {
    let Some(first) = request.events.first().map(|event| event.seq) else {
        let detail = "give at least one event; `renew` is what says whether a lease still holds";
        return Err(Error::invalid("events", detail));
    };
    let events = checked(request.events, first)?;
    let lease = engine
        .held_one(
            principal,
            LeaseRef {
                run_id,
                fence: request.fence,
            },
        )
        .await?;
    let appended = engine
        .store()
        .fleet()
        .append_events(&engine.settings().execution_scope, &lease, first, &events)
        .await?;
    match appended {
        Appended::Written => {
            engine.events().nudge(&lease.key.tenant, run_id);
            Ok(())
        }
        Appended::LeaseLost => Err(lease_lost()),
        Appended::Differs { seq } => Err(Error::invalid(
            "events",
            format!("event {seq} was written before with another content; number each event once"),
        )),
        Appended::Gap { next } => Err(Error::invalid(
            "events[0].seq",
            format!("this would leave a gap: the next number is {next}"),
        )),
    }
}

/// The events of an append, numbered without a gap from `first`, of kinds that a worker may write, in their shapes.
fn checked(given: Vec<NewEvent>, first: i64) -> Result<Vec<(EventKind, Value)>, Error> {
    if given.len() > limits::EVENTS_PER_APPEND_MAX {
        return Err(Error::invalid(
            "events",
            format!("at most {} at once", limits::EVENTS_PER_APPEND_MAX),
        ));
    }
    // With room for all of them: the numbers are counted on in SQL, where running over is an error of the statement.
    let last = i64::try_from(given.len())
        .ok()
        .and_then(|count| first.checked_add(count));
    if first < 1 || last.is_none() {
        return Err(Error::invalid(
            "events[0].seq",
            "start with nextSeq of the lease",
        ));
    }
    let mut events = Vec::with_capacity(given.len());
    for (index, event) in given.into_iter().enumerate() {
        if Some(event.seq)
            != i64::try_from(index)
                .ok()
                .and_then(|index| first.checked_add(index))
        {
            return Err(Error::invalid(
                format!("events[{index}].seq"),
                "numbers must rise by one without gaps",
            ));
        }
        if !event.kind.may_worker_append() {
            return Err(Error::invalid(
                format!("events[{index}].kind"),
                format!("{} is written by the platform only", event.kind),
            ));
        }
        let field = format!("events[{index}].body");
        refuse_unstorable(&field, &event.body)?;
        event.kind.refuse_body(&event.body).map_err(|shape| {
            Error::invalid(field, format!("the body of {} must be {shape}", event.kind))
        })?;
        events.push((event.kind, event.body));
    }
    Ok(events)
}
