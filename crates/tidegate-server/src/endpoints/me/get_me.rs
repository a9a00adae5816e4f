//! `GET /v1/me`.

use axum::Json;
use tidegate_engine::me;
use tidegate_model::api::MeView;

use crate::extract::Caller;

/// The key that is used: its role, tenant, scopes and end.
#[utoipa::path(
    get,
    path = "/v1/me",
    tag = "me",
    operation_id = "get_me",
    responses((status = 200, description = "The key.", body = MeView))
)]
pub async fn get_me(Caller(caller): Caller) -> Json<MeView> {
    Json(me::me(&caller))
}
