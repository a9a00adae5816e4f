//! The id of a request: taken from `x-request-id` where it is harmless, else made here; always sent back.

use axum::{extract::Request, middleware::Next, response::Response};
use http::{HeaderName, HeaderValue, header};

use crate::problem;

/// The header, in and out.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken over.
const MAX_BYTES: usize = 128;

/// The id of the request that is being answered.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// Gives the request its id and writes the problem, if the answer is one.
pub async fn assign(mut request: Request, next: Next) -> Response {
    let id = request
        .headers()
        .get(&HEADER)
        .and_then(acceptable)
        .unwrap_or_else(|| tidegate_model::RequestId::new().to_string());
    request.extensions_mut().insert(RequestId(id.clone()));
    let response = next.run(request).await;
    let mut response = problem::render(response, &id);
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(HEADER, value);
    }
    // Answers hold a tenant's data, and one kind holds a new key: no cache on the way may keep them.
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(no_store);
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// An id goes into logs and the audit, so only a plain word is taken over; anything else is replaced.
fn acceptable(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'/');
    let fits = (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(plain);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_ids_are_taken_over() {
        for good in ["a", "req_0193", "4bf92f35-77b3"] {
            assert_eq!(
                acceptable(&HeaderValue::from_static(good)).as_deref(),
                Some(good)
            );
        }
        let long = "a".repeat(MAX_BYTES + 1);
        for bad in ["", "a b", "a\tb", "\"x\"", &long] {
            assert!(
                acceptable(&HeaderValue::from_str(bad).unwrap()).is_none(),
                "{bad}"
            );
        }
    }
}
