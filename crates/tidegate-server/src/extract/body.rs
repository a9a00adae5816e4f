//! JSON bodies.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tidegate_model::{
    Code,
    api::Problem,
    limits::{JSON_DEPTH_MAX, REQUEST_MAX_BYTES, RESULT_MAX_BYTES},
    strict, words,
};

use super::nul;
use crate::problem::Failure;

/// A client that sends its body more slowly than this is not served. Reading has this time to itself: what the handler
/// may take begins when the body is there.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);
/// A result and what is around it.
const LARGE_MAX_BYTES: usize = RESULT_MAX_BYTES + REQUEST_MAX_BYTES;

/// A JSON body of at most [`REQUEST_MAX_BYTES`], read into `T`.
#[derive(Debug, Clone, Copy)]
pub struct JsonBody<T>(pub T);

/// A JSON body that holds the result of a run.
#[derive(Debug, Clone, Copy)]
pub struct LargeBody<T>(pub T);

/// No body, or `{}`: for actions that take nothing. Anything else would be ignored silently, so it is refused.
#[derive(Debug, Clone, Copy)]
pub struct NoBody;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bytes = json(request, REQUEST_MAX_BYTES).await?;
        parse(&bytes).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for LargeBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bytes = json(request, LARGE_MAX_BYTES).await?;
        parse(&bytes).map(Self)
    }
}

impl<S: Send + Sync> FromRequest<S> for NoBody {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bytes = read(request.into_body(), REQUEST_MAX_BYTES).await?;
        if bytes.is_empty() {
            return Ok(Self);
        }
        parse::<Nothing>(&bytes).map(|_| Self)
    }
}

/// A whole body of at most [`REQUEST_MAX_BYTES`], as it is.
pub(crate) async fn whole(body: Body) -> Result<Bytes, Failure> {
    read(body, REQUEST_MAX_BYTES).await
}

async fn json(request: Request, max: usize) -> Result<Bytes, Failure> {
    if !is_json(request.headers()) {
        let detail = "send the body in UTF-8 with the header content-type: application/json";
        return Err(Problem::new(Code::UnsupportedMediaType, detail)
            .with_field("content-type")
            .into());
    }
    if let Some(encoding) = request.headers().get(header::CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let detail = "send the body as it is: encoded ones (gzip and others) are not read";
        return Err(Problem::new(Code::UnsupportedMediaType, detail)
            .with_field("content-encoding")
            .into());
    }
    let announced = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    read(request.into_body(), max).await
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(value)) = headers.get(header::CONTENT_TYPE).map(|v| v.to_str()) else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    // JSON is UTF-8; who says otherwise sends something else.
    let other = parts.any(|part| {
        let (name, charset) = part.split_once('=').unwrap_or((part, ""));
        name.trim().eq_ignore_ascii_case("charset")
            && !charset
                .trim()
                .trim_matches('"')
                .eq_ignore_ascii_case("utf-8")
    });
    essence.eq_ignore_ascii_case("application/json") && !other
}

async fn read(body: Body, max: usize) -> Result<Bytes, Failure> {
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, max).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if is_too_large(&*error) => Err(too_large(max)),
        Ok(Err(_)) => Err(Failure::invalid("$", "the body ended before it was whole")),
        Err(_) => {
            let seconds = BODY_TIMEOUT.as_secs();
            let detail = format!(
                "the body did not arrive within {seconds} s, and nothing was done; send as many bytes as content-length \
                 says, or pass large data by reference"
            );
            Err(Failure::new(Code::RequestTimeout, detail))
        }
    }
}

fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn too_large(max: usize) -> Failure {
    let detail = format!("the body may have at most {max} bytes; pass large data by reference");
    Failure::new(Code::PayloadTooLarge, detail)
}

/// How deep a text of JSON is nested; of what is no JSON, at least as deep as its reader would go.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut in_text, mut escaped) = (false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reads JSON into `T`; a problem names the path of the field at fault.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    if depth(bytes) > JSON_DEPTH_MAX {
        let detail = format!(
            "JSON may be nested {JSON_DEPTH_MAX} levels deep; send what is deeper as a text"
        );
        return Err(Failure::invalid("$", detail));
    }
    nul::refuse(bytes)?;
    strict::from_slice(bytes).map_err(|error| {
        // A text that is no JSON has no fields, so that none of them can be unknown.
        match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
            Err(broken) if error.inner().is_data() => json_failure("$", &broken),
            _ => json_failure(&error.path().to_string(), error.inner()),
        }
    })
}

fn json_failure(path: &str, error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    // serde_json appends the position; the path says it better, except where the text is no JSON at all.
    let (what, position) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    if let Some(rest) = what.strip_prefix("unknown field `") {
        let (name, known) = rest.split_once('`').unwrap_or((rest, ""));
        let known = known.trim_start_matches(", ").replace('`', "");
        let shown = words::short(name);
        let detail = if known.is_empty() || known.starts_with("there are no") {
            format!("the field {shown:?} is not known here; this takes no fields")
        } else {
            format!("the field {shown:?} is not known here; {known}")
        };
        return Problem::new(Code::UnknownField, detail)
            .with_field(join(path, name))
            .into();
    }
    let detail = if error.is_data() {
        words::plain(what)
    } else if what == "number out of range" {
        // Well-formed by the grammar of JSON, and more than a double holds.
        "the number is out of range; numbers are 64-bit integers or doubles".to_owned()
    } else {
        format!("not valid JSON: {what} (line {position})")
    };
    let field = match named_field(what) {
        Some(name) => join(path, name),
        // What ends too early is wrong as a whole, however deep the end was.
        None if error.is_eof() => "$".to_owned(),
        None => root(path),
    };
    Failure::invalid(field, detail)
}

/// The field that an error of the object around it is about.
fn named_field(what: &str) -> Option<&str> {
    let about = ["missing field `", "duplicate field `"];
    let rest = about.iter().find_map(|prefix| what.strip_prefix(prefix))?;
    rest.strip_suffix('`')
}

fn root(path: &str) -> String {
    // A "?" stands for a name that was not read to its end.
    match path.trim_end_matches('?').trim_end_matches('.') {
        "" => "$".to_owned(),
        known => known.to_owned(),
    }
}

/// The path of a field; the tracker may or may not have seen the name already.
fn join(path: &str, name: &str) -> String {
    if path == name || path.ends_with(&format!(".{name}")) {
        return path.to_owned();
    }
    match root(path).as_str() {
        "$" => name.to_owned(),
        parent => format!("{parent}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_model::api::{CompleteRun, PutToolServer, RenewRequest, SubmitRun};

    use super::*;

    fn failure(json: &str) -> (Code, String) {
        let problem = parse::<SubmitRun>(json.as_bytes())
            .expect_err(json)
            .problem()
            .clone();
        (problem.code, problem.field.expect("a field"))
    }

    #[test]
    fn a_refusal_names_the_field_by_its_path() {
        let cases = [
            (
                r#"{"capability":"a","kind":"child"}"#,
                Code::UnknownField,
                "kind",
            ),
            (
                r#"{"capability":"a","budget":{"tokes":1}}"#,
                Code::UnknownField,
                "budget.tokes",
            ),
            (
                r#"{"capability":"a","budget":{"tokens":"x"}}"#,
                Code::InvalidArgument,
                "budget.tokens",
            ),
            (
                r#"{"capability":"A B"}"#,
                Code::InvalidArgument,
                "capability",
            ),
            (
                r#"{"capability":"a","priority":99999}"#,
                Code::InvalidArgument,
                "priority",
            ),
            (
                r#"{"capability":"a","deadline":"tomorrow"}"#,
                Code::InvalidArgument,
                "deadline",
            ),
            (
                r#"{"capability":"a","input":"\u0000"}"#,
                Code::InvalidArgument,
                "input",
            ),
            (
                r#"{"capability":"a","input":{"x":[1,"a\u0000"]}}"#,
                Code::InvalidArgument,
                "input.x[1]",
            ),
            (r#"{"input":1}"#, Code::InvalidArgument, "capability"),
            (
                r#"{"capability":"a","input":1e999}"#,
                Code::InvalidArgument,
                "input",
            ),
            (r#"{"capability":"a"} {}"#, Code::InvalidArgument, "$"),
            ("[]", Code::InvalidArgument, "$"),
            (r#"["chat"]"#, Code::InvalidArgument, "$"),
            (r#"{"capability":"a""#, Code::InvalidArgument, "$"),
            ("", Code::InvalidArgument, "$"),
        ];
        for (json, code, field) in cases {
            assert_eq!(failure(json), (code, field.to_owned()), "{json}");
        }
    }

    /// Bad input: two transports, or none, are no broken JSON, and the refusal says what to give.
    #[test]
    fn one_transport_is_asked_for_by_name() {
        let stdio = r#""stdio":{"command":"a"}"#;
        let http = r#""streamableHttp":{"url":"https://tools.example"}"#;
        for given in [format!("{stdio},{http}"), String::new()] {
            let json = format!(r#"{{"transport":{{{given}}}}}"#);
            let failure = parse::<PutToolServer>(json.as_bytes()).expect_err("refused");
            let problem = failure.problem();
            assert_eq!(problem.field.as_deref(), Some("transport"), "{json}");
            let detail = problem.detail.as_deref().expect("a detail");
            assert_eq!(detail, "give exactly one of stdio, streamableHttp, http");
        }
        let json = r#"{"transport":{"stdio":{"command":1}}}"#;
        let failure = parse::<PutToolServer>(json.as_bytes()).expect_err("refused");
        let field = failure.problem().field.as_deref();
        assert_eq!(field, Some("transport.stdio.command"));
    }

    /// Bad input: a list of an object's values is no object, and the refusal names the members.
    #[test]
    fn an_object_is_not_read_from_a_list() {
        let json = r#"{"leases":[["run_019adf5cbe0070008000000000000000","1.1"]]}"#;
        let failure = parse::<RenewRequest>(json.as_bytes()).expect_err("a list");
        let problem = failure.problem();
        assert_eq!(problem.field.as_deref(), Some("leases[0]"));
        let detail = problem.detail.as_deref().expect("a detail");
        assert!(detail.contains("members by name: runId, fence"), "{detail}");
    }

    /// Bad input: a null for a word is no broken JSON, and the refusal says to leave it out.
    #[test]
    fn a_null_for_a_word_is_answered_with_the_words() {
        let json = r#"{"capability":"a","requirements":{"sandbox":null}}"#;
        let failure = parse::<SubmitRun>(json.as_bytes()).expect_err("a null");
        let problem = failure.problem();
        assert_eq!(problem.field.as_deref(), Some("requirements.sandbox"));
        let detail = problem.detail.as_deref().expect("a detail");
        let expected = "expected one of none, process, container, vm, found null; give a value, or leave the field out where it may be absent";
        assert_eq!(detail, expected);
    }

    #[test]
    fn elements_of_lists_are_named_by_their_position() {
        let json = r#"{"leases":[{"runId":"run_1","fence":"1.1"}]}"#;
        let problem = parse::<RenewRequest>(json.as_bytes()).expect_err("bad id");
        assert_eq!(problem.problem().field.as_deref(), Some("leases[0].runId"));
    }

    #[test]
    fn a_number_beyond_all_numbers_is_named_by_its_field() {
        let json = r#"{"fence":"1.1","result":{},"usage":{"tokens":1e400}}"#;
        let problem = parse::<CompleteRun>(json.as_bytes()).expect_err("no number");
        let problem = problem.problem();
        assert_eq!(problem.field.as_deref(), Some("usage.tokens"));
        let detail = problem.detail.as_deref().expect("a detail");
        assert!(detail.starts_with("the number is out of range"), "{detail}");
    }

    #[test]
    fn what_is_no_json_holds_no_unknown_field() {
        for json in [r#"{"a":"#, r#"{"a":1"#, r#"{"a":1,]"#] {
            assert_eq!(failure(json), (Code::InvalidArgument, "$".to_owned()));
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_crash() {
        let json = format!(
            r#"{{"capability":"a","input":{}1{}}}"#,
            "[".repeat(4000),
            "]".repeat(4000)
        );
        assert_eq!(failure(&json).0, Code::InvalidArgument);
    }
}
