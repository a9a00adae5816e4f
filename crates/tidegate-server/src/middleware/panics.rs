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

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, routing};
    use http::{Request, StatusCode};
    use tidegate_model::api::Problem;
    use tower::ServiceExt;
    use tower_http::catch_panic::CatchPanicLayer;

    use crate::middleware::request_id;

    #[tokio::test]
    async fn a_panic_is_a_problem_that_says_nothing_of_its_message() {
        let router = Router::new()
            .route(
                "/",
                routing::get(async || -> () { panic!("secret canary") }),
            )
            .layer(CatchPanicLayer::custom(super::answer))
            .layer(axum::middleware::from_fn(request_id::assign));
        let request = Request::get("/")
            .header("x-request-id", "r-1")
            .body(Body::empty());
        let answer = router.oneshot(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = axum::body::to_bytes(answer.into_body(), 4096)
            .await
            .unwrap();
        assert!(!String::from_utf8_lossy(&body).contains("canary"));
        let problem: Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.code, tidegate_model::Code::Internal);
        assert_eq!(problem.request_id.as_deref(), Some("r-1"));
    }
}
