//! A panic of a handler is a problem with a request id, not a dropped connection.

use std::any::Any;

use axum::response::{IntoResponse, Response};
use tidegate_model::Code;

use crate::problem::Failure;

/// The answer to a panic. Its message goes to the log only, since it may hold anything.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature is the layer's"
)]
pub fn answer(payload: Box<dyn Any + Send + 'static>) -> Response {
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(panic = message, "a handler panicked");
    metrics::counter!("tidegate_http_panics_total").increment(1);
    Failure::new(
        Code::Internal,
        "a defect of the server; report it with the request id",
    )
    .into_response()
}
