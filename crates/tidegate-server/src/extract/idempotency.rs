//! The header `Idempotency-Key`.

use axum::extract::FromRequestParts;
use http::{HeaderMap, request::Parts};
use tidegate_model::limits::IDEMPOTENCY_KEY_MAX_BYTES;

use crate::problem::Failure;

/// The header's name.
pub const HEADER: &str = "idempotency-key";

/// The caller's name for one intent, for the routes that accept runs: the same key and body give the same run (R3.1).
/// On other routes the gate makes the principal's intent of it.
#[derive(Debug, Clone)]
pub struct IdempotencyKey(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        read(&parts.headers).map(Self)
    }
}

/// Reads the header; also called for routes that repeat harmlessly without it, so that a malformed key is never
/// accepted in one place and refused in another.
pub fn read(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Failure::invalid(HEADER, "send the header once"));
    }
    let bytes = value.as_bytes();
    let fits = (1..=IDEMPOTENCY_KEY_MAX_BYTES).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic);
    if !fits {
        let detail = format!(
            "1 to {IDEMPOTENCY_KEY_MAX_BYTES} printable ASCII characters without spaces are allowed, for example a UUID"
        );
        return Err(Failure::invalid(HEADER, detail));
    }
    Ok(Some(String::from_utf8_lossy(bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn with(value: &[u8]) -> HeaderMap {
        let value = HeaderValue::from_bytes(value).unwrap();
        HeaderMap::from_iter([(http::HeaderName::from_static(HEADER), value)])
    }

    #[test]
    fn only_printable_keys_of_a_bounded_length_pass() {
        assert!(read(&HeaderMap::new()).unwrap().is_none());
        let good = read(&with(b"2f1c-9")).unwrap();
        assert_eq!(good.as_deref(), Some("2f1c-9"));
        let long = vec![b'a'; IDEMPOTENCY_KEY_MAX_BYTES + 1];
        for bad in [b"".as_slice(), b"a b", "schlüssel".as_bytes(), &long] {
            assert!(read(&with(bad)).is_err(), "{bad:?}");
        }
        let mut twice = with(b"a");
        twice.append(HEADER, HeaderValue::from_static("b"));
        assert!(read(&twice).is_err());
    }
}
