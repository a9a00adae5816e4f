//! The header `Accept`.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::{header, request::Parts};

/// Whether the caller asks for a stream of events in place of one JSON answer.
#[derive(Debug, Clone, Copy)]
pub struct WantsStream(pub bool);

impl<S: Send + Sync> FromRequestParts<S> for WantsStream {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let accepts = parts.headers.get_all(header::ACCEPT);
        let wants = accepts
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|list| {
                list.split(',')
                    .filter_map(|item| item.split(';').next())
                    .any(|media| media.trim().eq_ignore_ascii_case("text/event-stream"))
            });
        Ok(Self(wants))
    }
}
