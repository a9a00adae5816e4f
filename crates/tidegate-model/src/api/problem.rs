//! Errors on the wire: RFC 9457 problems with a stable code.

use serde::{Deserialize, Serialize};

use crate::{Code, limits::PROBLEM_FIELD_MAX_CHARS};

/// The body of every answer that is not a success (`application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `https://tidegate.dev/codes/` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code's short text.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What a client matches on.
    pub code: Code,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What was wrong here, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The JSON path, header or parameter that is at fault; at most 200 characters, a longer one lacks its middle (`…`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Finds the request in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When to try again, where that can help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Every reason, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// With `EVENTS_PRUNED`: the number of the first event that is kept. The stream goes on from there with the one before
    /// it as `Last-Event-ID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seq: Option<i64>,
}

impl Problem {
    /// A problem with a code and what was wrong.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("https://tidegate.dev/codes/{code}"),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            retryable: code.retryable(),
            detail: Some(detail.into()),
            field: None,
            request_id: None,
            retry_after_ms: None,
            reasons: Vec::new(),
            first_seq: None,
        }
    }

    /// Names the field at fault. A path comes from the caller's own JSON, whose names may have any length.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(without_middle(field.into(), PROBLEM_FIELD_MAX_CHARS));
        self
    }

    /// Says when to try again.
    #[must_use]
    pub const fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }
}

/// A text that is too long without its middle: of a path, the beginning says where it leads in and the end what is at
/// fault.
fn without_middle(text: String, max_chars: usize) -> String {
    let length = text.chars().count();
    if length <= max_chars {
        return text;
    }
    let tail = max_chars / 2;
    let head = text.chars().take(max_chars - tail - 1);
    let tail = text.chars().skip(length - tail);
    head.chain(std::iter::once('…')).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bad input: a path of any length names the field, and stays short.
    #[test]
    fn a_long_field_lacks_its_middle() {
        let field = |text: String| {
            let problem = Problem::new(Code::InvalidArgument, "x").with_field(text);
            problem.field.unwrap()
        };
        assert_eq!(field("é".repeat(200)), "é".repeat(200));
        let cut = field(format!("input.{}.last", "é".repeat(5_000)));
        assert_eq!(cut.chars().count(), PROBLEM_FIELD_MAX_CHARS);
        assert!(
            cut.starts_with("input.é") && cut.ends_with("é.last"),
            "{cut}"
        );
        assert!(cut.contains("é…é"), "{cut}");
    }
}
