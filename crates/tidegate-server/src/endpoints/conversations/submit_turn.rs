//! `POST /v1/conversations/{conversationId}/turns`.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use tidegate_engine::{
    conversations::turn,
    events::{open, tail},
};
use tidegate_model::{
    ConversationId,
    api::{RunEvent, SubmitTurn, TurnAccepted},
};

use crate::{
    extract::{Caller, Credential, IdempotencyKey, JsonBody, PathId, WantsStream},
    middleware::repeats::replayed,
    problem::Failure,
    sse,
    state::AppState,
};

/// A turn of a conversation.
///
/// With `Accept: text/event-stream` the answer is the run's events until it ends; a reader that leaves does not cancel
/// the run and finds it by the header `x-tidegate-run`.
#[utoipa::path(
    post,
    path = "/v1/conversations/{conversationId}/turns",
    tag = "conversations",
    operation_id = "submit_turn",
    params(("conversationId" = ConversationId, Path, description = "The conversation.")),
    request_body = SubmitTurn,
    responses(
        (status = 202, description = "Accepted.", body = TurnAccepted),
        (status = 200, description = "Accepted before under this key; or, where a stream was asked for, the run's events.", content(
            (TurnAccepted = "application/json"),
            (RunEvent = "text/event-stream"),
        )),
    )
)]
pub async fn submit_turn(
    State(state): State<AppState>,
    Caller(caller): Caller,
    credential: Credential,
    PathId(conversation): PathId<ConversationId>,
    WantsStream(stream): WantsStream,
    IdempotencyKey(key): IdempotencyKey,
    JsonBody(body): JsonBody<SubmitTurn>,
) -> Result<Response, Failure> {
    // Before the turn: where there is no place for its stream, nothing was submitted.
    let place = stream
        .then(|| open::open(&state.engine, &caller))
        .transpose()?;
    let turn = turn::submit_turn(&state.engine, &caller, conversation, body, key).await?;
    if let Some(place) = place {
        let events = tail::tail(&state.engine, &caller, turn.run_id, 0).await?;
        let stream = sse::respond(&state, credential, place, turn.run_id, 0, events);
        return Ok(if turn.repeated {
            replayed(stream)
        } else {
            stream
        });
    }
    Ok(if turn.repeated {
        replayed(Json(turn))
    } else {
        (StatusCode::ACCEPTED, Json(turn)).into_response()
    })
}
