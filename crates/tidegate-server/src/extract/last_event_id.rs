//! The header `Last-Event-ID`.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::problem::Failure;

/// The number of the last event that the reader has; 0 unless given.
#[derive(Debug, Clone, Copy)]
pub struct LastEventId(pub i64);

impl<S: Send + Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let Some(value) = parts.headers.get("last-event-id") else {
            return Ok(Self(0));
        };
        let number = value
            .to_str()
            .ok()
            .and_then(|text| text.parse::<i64>().ok());
        match number {
            Some(number) if number >= 0 => Ok(Self(number)),
            _ => {
                let detail = "the number of an event of this run, for example 12, or no header to read from the start";
                Err(Failure::invalid("last-event-id", detail))
            }
        }
    }
}
