//! `POST /v1/admin/keys`.

use axum::{Json, extract::State};
use http::StatusCode;
use tidegate_engine::{Engine, keys};
use tidegate_model::api::{CreateKey, CreatedKey};

use crate::{
    extract::{Caller, JsonBody},
    problem::Failure,
};

/// Makes an API key; the secret is in this answer and nowhere else.
#[utoipa::path(
    post,
    path = "/v1/admin/keys",
    tag = "admin",
    operation_id = "create_key",
    request_body = CreateKey,
    responses((status = 201, description = "The key with its secret.", body = CreatedKey))
)]
pub async fn create_key(
    State(engine): State<Engine>,
    Caller(caller): Caller,
    JsonBody(body): JsonBody<CreateKey>,
) -> Result<(StatusCode, Json<CreatedKey>), Failure> {
    let answer = keys::create(&engine, &caller, body).await?;
    Ok((StatusCode::CREATED, Json(answer)))
}
