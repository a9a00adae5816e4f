//! Failures as RFC 9457 problems.
//!
//! A handler or a layer answers with a [`Failure`]; it travels as an extension of the response, and one layer at the
//! edge writes the body, so that every problem carries the id of its request, whoever raised it.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use tidegate_engine::trouble::{chain, is_database_away};
use tidegate_model::{
    Code,
    api::{self, Problem},
};

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// An answer that is not a success.
#[derive(Debug, Clone)]
pub struct Failure(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    problem: Problem,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Failure {
    /// A failure with a code and what was wrong here, including what to do about it.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// A value that cannot be accepted; `field` is a JSON path, a parameter or a header.
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Problem::new(Code::InvalidArgument, detail)
            .with_field(field)
            .into()
    }

    /// Adds a header of the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// What will be written.
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(Box::new(Inner {
            problem,
            headers: Vec::new(),
        }))
    }
}

impl From<tidegate_engine::Error> for Failure {
    fn from(error: tidegate_engine::Error) -> Self {
        let problem = error.problem();
        // The public text says nothing of the inside; the log has the chain of causes. Of a database that cannot be used
        // the heartbeat speaks, once for all requests.
        // That it drains was said when it began.
        if is_database_away(&error) || problem.code == Code::ShuttingDown {
            tracing::debug!(code = %problem.code, error = chain(&error), "request failed");
        } else if problem.status >= 500 {
            tracing::error!(code = %problem.code, error = chain(&error), "request failed");
        }
        problem.into()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = status_of(&self.0.problem).into_response();
        response.headers_mut().extend(self.0.headers);
        response.extensions_mut().insert(self.0.problem);
        response
    }
}

/// Writes the body of a failed answer. What did not come from a [`Failure`] (a rejection inside the framework) is
/// turned into the problem of its status, so that no failure leaves without a code.
pub fn render(mut response: Response, request_id: &str) -> Response {
    let status = response.status();
    let problem = response.extensions_mut().remove::<Problem>();
    if !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let already_written = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/"));
    let Some(mut problem) = problem.or_else(|| (!already_written).then(|| of_status(status)))
    else {
        return response;
    };
    problem.request_id = Some(request_id.to_owned());
    let mut headers = std::mem::take(response.headers_mut());
    let extensions = std::mem::take(response.extensions_mut());
    let mut answer = (status_of(&problem), Json(&problem)).into_response();
    // The type and length of a body that is not sent any more.
    headers.remove(header::CONTENT_TYPE);
    headers.remove(header::CONTENT_LENGTH);
    answer.headers_mut().extend(headers);
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if let Some(after) = problem.retry_after_ms {
        // Whole seconds, rounded up: earlier than asked for is the one wrong direction.
        answer
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(after.div_ceil(1000)));
    }
    *answer.extensions_mut() = extensions;
    answer
}

fn status_of(problem: &api::Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn of_status(status: StatusCode) -> Problem {
    let code = match status {
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        StatusCode::PAYLOAD_TOO_LARGE => Code::PayloadTooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
        status if status.is_client_error() => Code::InvalidArgument,
        _ => Code::Internal,
    };
    Problem::new(
        code,
        "the request was refused before it reached its handler",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_problem_carries_its_request_and_rounds_the_wait_up() {
        let failure: Failure = Problem::new(Code::QueueFull, "the queue holds 10 runs")
            .with_retry_after_ms(1001)
            .into();
        let answer = render(failure.into_response(), "req-7");
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], MEDIA_TYPE);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "2");
        let body = axum::body::to_bytes(answer.into_body(), 4096)
            .await
            .unwrap();
        let problem: Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.request_id.as_deref(), Some("req-7"));
        assert!(problem.retryable);
    }

    #[test]
    fn a_failure_without_a_problem_gets_the_one_of_its_status() {
        let answer = render(StatusCode::PAYLOAD_TOO_LARGE.into_response(), "r");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], MEDIA_TYPE);
        let fine = render(StatusCode::NO_CONTENT.into_response(), "r");
        assert!(fine.headers().get(header::CONTENT_TYPE).is_none());
    }
}
