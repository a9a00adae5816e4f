//! `POST /v1/worker/runs/{runId}/children`.

use axum::{Json, extract::State};
use http::StatusCode;
use tidegate_engine::{Engine, worker::children};
use tidegate_model::{
    RunId,
    api::{ChildAccepted, SubmitChild},
};

use crate::{
    extract::{Caller, JsonBody, PathId},
    problem::Failure,
};

/// Starts a child of the run. A refusal (limits of the tree, no pool, suspended tenant, another child under this key, the
/// run is to stop) is the answer, with its code and whether trying again can help.
#[utoipa::path(
    post,
    path = "/v1/worker/runs/{runId}/children",
    tag = "worker",
    operation_id = "submit_child",
    params(("runId" = RunId, Path, description = "The parent.")),
    request_body = SubmitChild,
    responses(
        (status = 202, description = "Accepted.", body = ChildAccepted),
        (status = 200, description = "Accepted before under this key.", body = ChildAccepted),
    )
)]
pub async fn submit_child(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    PathId(run): PathId<RunId>,
    JsonBody(body): JsonBody<SubmitChild>,
) -> Result<(StatusCode, Json<ChildAccepted>), Failure> {
    let child = children::submit_child(&engine, &caller, run, body).await?;
    let status = if child.repeated {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok((status, Json(child)))
}
