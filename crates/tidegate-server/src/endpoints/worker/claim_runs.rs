//! `POST /v1/worker/claim`.

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;
use http::header;
use tidegate_engine::Engine;
use tidegate_model::{
    Code,
    api::{ClaimAnswer, ClaimRequest},
};

use crate::{
    claim::{self, Held},
    extract::{Caller, Credential, JsonBody},
    problem::Failure,
    shutdown::Shutdown,
};

/// Asks for work and waits for it. A claimer that goes away takes nothing with it, and one whose key is revoked or runs out
/// meanwhile is given nothing.
#[utoipa::path(
    post,
    path = "/v1/worker/claim",
    tag = "worker",
    operation_id = "claim_runs",
    request_body = ClaimRequest,
    responses((status = 200, description = "Leases; none when the wait was over.", body = ClaimAnswer))
)]
pub async fn claim_runs(
    State(engine): State<Engine>,
    State(shutdown): State<Shutdown>,
    Caller(caller): Caller,
    credential: Credential,
    JsonBody(body): JsonBody<ClaimRequest>,
) -> Result<Response, Failure> {
    let held = claim::wait(engine, caller, Some(credential), shutdown, body).await?;
    let json = serde_json::to_vec(&held.answer())
        .map_err(|_| Failure::new(Code::Internal, "the leases cannot be written"))?;
    Ok(guarded(json.into(), held))
}

/// The leases count as delivered once the connection has taken their bytes; a response that is dropped before gives
/// them back.
fn guarded(json: Bytes, mut held: Held) -> Response {
    let length = json.len();
    let taken = stream::once(async move {
        held.delivered();
        Ok::<_, std::convert::Infallible>(json)
    });
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    (headers, Body::from_stream(taken)).into_response()
}
