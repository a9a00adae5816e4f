//! Turns what a provider says when it refuses into a kind that callers can act on.

use std::time::Duration;

use chrono::DateTime;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::error::{FaultKind, ProviderFault};

/// Words in a code or a message that say that the account is empty.
const EMPTY_ACCOUNT: [&str; 6] = [
    "insufficient_quota",
    "insufficient_balance",
    "insufficient balance",
    "billing_hard_limit",
    "credit balance",
    "out of credits",
];

/// Words that say that the conversation does not fit.
const TOO_LONG: [&str; 6] = [
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context window",
    "prompt is too long",
    "string_above_max_length",
];

/// When the provider wants to be asked again: `retry-after-ms`, or `Retry-After` in seconds or as a date. A date is
/// read against the provider's own `Date`, so that no clock of this machine decides.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    let number = |text: &str| {
        text.parse::<f64>()
            .ok()
            .filter(|n| n.is_finite() && *n >= 0.0)
    };
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(ms / 1_000.0).ok();
    }
    let after = text(RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(after) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = DateTime::parse_from_rfc2822(after).ok()?;
    let now = DateTime::parse_from_rfc2822(text(DATE.as_str())?).ok()?;
    Some((at - now).to_std().unwrap_or(Duration::ZERO))
}

/// An answer with an error status.
pub(super) fn refusal(status: u16, retry_after: Option<Duration>, body: &str) -> ProviderFault {
    let object = serde_json::from_str::<Value>(body).ok();
    let (code, message) = match object
        .as_ref()
        .map(|object| object.get("error").unwrap_or(object))
    {
        Some(error) => describe(error),
        None => (None, plain_text(body)),
    };
    let words = format!("{} {message}", code.as_deref().unwrap_or_default()).to_lowercase();
    let kind = match status {
        _ if contains_any(&words, &EMPTY_ACCOUNT) => FaultKind::CreditExhausted,
        401 | 403 => FaultKind::Auth,
        402 => FaultKind::CreditExhausted,
        413 => FaultKind::TooLong,
        400 | 422 if contains_any(&words, &TOO_LONG) => FaultKind::TooLong,
        429 => FaultKind::Throttled,
        408 | 504 => FaultKind::Timeout,
        500.. => FaultKind::Overloaded,
        300..=399 => {
            let text = "it answers with a redirect, which is never followed";
            return ProviderFault {
                status: Some(status),
                ..ProviderFault::new(FaultKind::Refused, text)
            };
        }
        _ => FaultKind::Refused,
    };
    ProviderFault {
        status: Some(status),
        provider_code: code,
        retry_after,
        ..ProviderFault::new(kind, message)
    }
}

/// An error inside an answer whose status said that all is well.
pub(super) fn error_object(error: &Value) -> ProviderFault {
    let (code, message) = describe(error);
    let status = ["status", "code"]
        .iter()
        .filter_map(|field| error.get(field).and_then(Value::as_u64))
        .find_map(|status| {
            u16::try_from(status)
                .ok()
                .filter(|status| (400..600).contains(status))
        });
    let words = format!("{} {message}", code.as_deref().unwrap_or_default()).to_lowercase();
    let kind = match status {
        Some(status) => {
            refusal(
                status,
                None,
                &serde_json::json!({ "error": error }).to_string(),
            )
            .kind
        }
        None if contains_any(&words, &EMPTY_ACCOUNT) => FaultKind::CreditExhausted,
        None if contains_any(&words, &TOO_LONG) => FaultKind::TooLong,
        None if words.contains("rate_limit") || words.contains("rate limit") => {
            FaultKind::Throttled
        }
        None if words.contains("overloaded") || words.contains("server_error") => {
            FaultKind::Overloaded
        }
        None => FaultKind::BadAnswer,
    };
    // No status: the answer may have cost tokens although it failed.
    ProviderFault {
        provider_code: code,
        ..ProviderFault::new(kind, message)
    }
}

/// Code and message of an error in one of the usual shapes.
fn describe(error: &Value) -> (Option<String>, String) {
    if let Some(text) = error.as_str() {
        return (None, text.to_owned());
    }
    let text = |name: &str| {
        error
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    // A number repeats the status; the type says more.
    let code = text("code").or_else(|| text("type")).map(str::to_owned);
    let number = || {
        error
            .get("code")
            .and_then(Value::as_u64)
            .map(|code| code.to_string())
    };
    let message = text("message")
        .or_else(|| text("detail"))
        .unwrap_or_default();
    (code.or_else(number), message.to_owned())
}

/// A body that is no JSON, unless it is a page.
fn plain_text(body: &str) -> String {
    if body.trim_start().starts_with('<') {
        "it answered with a web page".to_owned()
    } else {
        body.to_owned()
    }
}

fn contains_any(words: &str, needles: &[&str]) -> bool {
    needles.iter().any(|needle| words.contains(needle))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    type Refusal = (u16, &'static str, FaultKind, Option<&'static str>);

    const REFUSALS: [Refusal; 13] = [
        (
            429,
            r#"{"error":{"code":"rate_limit_exceeded","message":"slow down"}}"#,
            FaultKind::Throttled,
            Some("rate_limit_exceeded"),
        ),
        (
            429,
            r#"{"error":{"code":"insufficient_quota","message":"you exceeded your quota"}}"#,
            FaultKind::CreditExhausted,
            Some("insufficient_quota"),
        ),
        (
            402,
            r#"{"error":{"message":"pay"}}"#,
            FaultKind::CreditExhausted,
            None,
        ),
        (
            401,
            r#"{"error":{"type":"invalid_request_error","message":"bad key","code":null}}"#,
            FaultKind::Auth,
            Some("invalid_request_error"),
        ),
        (
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            FaultKind::TooLong,
            Some("context_length_exceeded"),
        ),
        (
            400,
            r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"request (4024 tokens) exceeds the available size"}}"#,
            FaultKind::TooLong,
            Some("exceed_context_size_error"),
        ),
        (413, "", FaultKind::TooLong, None),
        (
            404,
            r#"{"detail":"no such model"}"#,
            FaultKind::Refused,
            None,
        ),
        (422, "oops", FaultKind::Refused, None),
        (500, "<html>", FaultKind::Overloaded, None),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
            FaultKind::Overloaded,
            Some("overloaded_error"),
        ),
        (504, "", FaultKind::Timeout, None),
        (307, "", FaultKind::Refused, None),
    ];

    #[test]
    fn refusals_are_told_apart() {
        for (status, body, kind, code) in REFUSALS {
            let fault = refusal(status, None, body);
            assert_eq!(
                (fault.kind, fault.provider_code.as_deref(), fault.status),
                (kind, code, Some(status)),
                "{body}"
            );
        }
    }

    #[test]
    fn errors_inside_good_answers_are_told_apart() {
        for (error, kind) in [
            (
                serde_json::json!({"code": 429, "message": "slow"}),
                FaultKind::Throttled,
            ),
            (
                serde_json::json!({"type": "rate_limit_error", "message": "slow"}),
                FaultKind::Throttled,
            ),
            (
                serde_json::json!({"type": "overloaded_error"}),
                FaultKind::Overloaded,
            ),
            (
                serde_json::json!({"code": "context_length_exceeded"}),
                FaultKind::TooLong,
            ),
            (serde_json::json!("what"), FaultKind::BadAnswer),
        ] {
            assert_eq!(error_object(&error).kind, kind, "{error}");
        }
    }

    #[test]
    fn the_hint_is_read_in_all_its_forms() {
        let read = |fields: &[(&'static str, &'static str)]| {
            retry_after(
                &fields
                    .iter()
                    .map(|(n, v)| (n.parse().unwrap(), HeaderValue::from_static(v)))
                    .collect(),
            )
        };
        let s = Duration::from_secs;
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("retry-after", "7")]), Some(s(7)));
        assert_eq!(
            read(&[("retry-after", "1.5")]),
            Some(Duration::from_millis(1_500))
        );
        assert_eq!(
            read(&[("retry-after", "7"), ("retry-after-ms", "250")]),
            Some(Duration::from_millis(250))
        );
        assert_eq!(read(&[("retry-after", "-1")]), None);
        assert_eq!(read(&[("retry-after", "soon")]), None);
        let date = ("date", "Sun, 29 Nov 2026 10:00:00 GMT");
        assert_eq!(
            read(&[date, ("retry-after", "Sun, 29 Nov 2026 10:00:30 GMT")]),
            Some(s(30))
        );
        assert_eq!(
            read(&[date, ("retry-after", "Sun, 29 Nov 2026 09:00:00 GMT")]),
            Some(s(0))
        );
        assert_eq!(
            read(&[("retry-after", "Sun, 29 Nov 2026 10:00:30 GMT")]),
            None
        );
    }
}
