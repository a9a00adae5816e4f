//! `GET /readyz`.

use axum::{Json, extract::State};
use http::StatusCode;
use tidegate_engine::{Engine, ready};
use tidegate_model::api::{Readiness, ReadinessCheck};

use crate::shutdown::Shutdown;

/// Whether traffic should come here: a short write to the database passes and the instance is not draining.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "probes",
    responses(
        (status = 200, description = "Ready.", body = Readiness),
        (status = 503, description = "Not ready; each check says why.", body = Readiness),
    )
)]
pub async fn readyz(
    State(engine): State<Engine>,
    State(shutdown): State<Shutdown>,
) -> (StatusCode, Json<Readiness>) {
    let readiness = if shutdown.is_draining() {
        draining()
    } else {
        ready::readiness(&engine).await
    };
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(readiness))
}

/// Said at once, whatever the database is doing.
fn draining() -> Readiness {
    let check = ReadinessCheck {
        name: "draining".to_owned(),
        ok: false,
        detail: "takes no new work; send it elsewhere".to_owned(),
    };
    Readiness {
        ready: false,
        checks: vec![check],
    }
}
