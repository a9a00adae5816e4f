//! `GET /v1/runs/{runId}/events`.

use axum::{extract::State, response::Response};
use tidegate_engine::events::{open, tail};
use tidegate_model::{RunId, api::RunEvent};

use crate::{
    extract::{Caller, Credential, LastEventId, PathId},
    problem::Failure,
    sse,
    state::AppState,
};

/// The run's events from the one after `Last-Event-ID`, as they are written, until the run has ended.
///
/// More streams at once than a tenant or an instance may have are refused as `TOO_MANY_STREAMS`. A reader that takes
/// nothing for half a minute (`TIDEGATE_CLIENT_STALL_MS`) is cut off, and resumes after the last event it has.
#[utoipa::path(
    get,
    path = "/v1/runs/{runId}/events",
    tag = "runs",
    operation_id = "stream_events",
    params(
        ("runId" = RunId, Path, description = "The run."),
        ("last-event-id" = Option<i64>, Header, description = "The number of the last event that the reader has; from the start unless given."),
    ),
    responses((
        status = 200,
        description = "Server-sent events: `id` is the event's number, `event` its kind, `data` the event. Comments are heartbeats; a stream that ends before `run.ended` is to be resumed with `Last-Event-ID`.",
        content_type = "text/event-stream",
        body = RunEvent,
    ))
)]
pub async fn stream_events(
    State(state): State<AppState>,
    Caller(caller): Caller,
    credential: Credential,
    PathId(run): PathId<RunId>,
    LastEventId(after): LastEventId,
) -> Result<Response, Failure> {
    let place = open::open(&state.engine, &caller)?;
    let events = tail::tail(&state.engine, &caller, run, after).await?;
    Ok(sse::respond(&state, credential, place, run, after, events))
}
