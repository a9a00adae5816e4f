//! Calls of an HTTP API as tools.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    body::Body,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::stream;
use serde_json::{Value, json};
use tidegate_agent::{
    ToolServerSpec,
    tools::{Endpoint, Reached, Transport},
};
use tidegate_model::{
    Code,
    api::{HttpMethod, HttpTool, SideEffectLevel, StatusMeaning},
};

use crate::{
    rig::{Names, PUBLIC, Seen, Server, canary, host, network, redirect},
    support::{acme, name},
};

fn tool(method: HttpMethod, path: &str) -> HttpTool {
    HttpTool {
        description: "a call".to_owned(),
        method,
        path: path.to_owned(),
        schema: json!({"type": "object", "properties": {"id": {}, "text": {}}}),
        statuses: BTreeMap::from([("404".to_owned(), StatusMeaning::Answer)]),
        max_bytes: Some(10_000),
    }
}

/// An API with its tools, all marked `read` but `write`.
pub fn api_spec(url: &str) -> ToolServerSpec {
    let base = Endpoint {
        url: url.to_owned(),
        headers: BTreeMap::from([("X-Api-Key".to_owned(), "canary-key-7".into())]),
    };
    let mut tools = BTreeMap::from([("write".to_owned(), tool(HttpMethod::Post, "/items/{id}"))]);
    for name in [
        "get", "missing", "bad", "down", "denied", "large", "slow", "drip", "image", "echo",
        "moved", "away", "loop", "inside", "file", "empty", "zipped",
    ] {
        tools.insert(
            name.to_owned(),
            tool(HttpMethod::Get, &format!("/{name}/{{id}}")),
        );
    }
    let marks = tools.keys().filter(|name| *name != "write").cloned();
    let marks = marks.map(|name| (name, SideEffectLevel::Read)).collect();
    let mut spec = ToolServerSpec::new(name("shop"), Transport::Http { base, tools });
    spec.tools = marks;
    spec.call_timeout = Duration::from_millis(900);
    spec.idle_timeout = Duration::from_millis(300);
    spec
}

fn answer(seen: &Seen, elsewhere: &str) -> Response {
    let (first, _) = seen.target[1..].split_once('/').unwrap();
    match first {
        "missing" => (StatusCode::NOT_FOUND, "there is no such item").into_response(),
        "bad" => (StatusCode::BAD_REQUEST, "id must be a number").into_response(),
        "down" => (StatusCode::SERVICE_UNAVAILABLE, "secret inner workings").into_response(),
        "denied" => (StatusCode::UNAUTHORIZED, "canary-key-7 is wrong").into_response(),
        "large" => "x".repeat(20_000).into_response(),
        "slow" => stalled(Vec::new(), 60_000),
        "drip" => stalled(vec!["a"; 100], 100),
        "zipped" => ([(header::CONTENT_ENCODING, "gzip")], "ZIP").into_response(),
        "image" => ([(header::CONTENT_TYPE, "image/png")], "PNG").into_response(),
        "echo" => format!("key {:?}", seen.headers.get("x-api-key")).into_response(),
        "moved" => redirect(307, "/get/9"),
        "away" | "inside" => redirect(302, elsewhere),
        "loop" => redirect(302, "/loop/1"),
        "file" => redirect(302, "file:///etc/hostname"),
        "empty" => StatusCode::NO_CONTENT.into_response(),
        _ => format!("{} {}", seen.method, seen.target).into_response(),
    }
}

fn stalled(pieces: Vec<&'static str>, every_ms: u64) -> Response {
    let pieces = stream::unfold(pieces.into_iter(), move |mut pieces| async move {
        tokio::time::sleep(Duration::from_millis(every_ms)).await;
        Some((Ok::<_, std::io::Error>(pieces.next()?), pieces))
    });
    Body::from_stream(pieces).into_response()
}

/// A call and what must come of it.
struct Case {
    tool: &'static str,
    arguments: Value,
    code: Option<Code>,
    is_error: bool,
    reached: Reached,
    text: &'static str,
}

fn answered(tool: &'static str, arguments: Value, text: &'static str) -> Case {
    Case {
        tool,
        arguments,
        code: None,
        is_error: false,
        reached: Reached::Answered,
        text,
    }
}

fn failed(tool: &'static str, text: &'static str) -> Case {
    Case {
        is_error: true,
        ..answered(tool, json!({"id": 1}), text)
    }
}

fn unavailable(tool: &'static str, reached: Reached, text: &'static str) -> Case {
    Case {
        code: Some(Code::ToolUnavailable),
        reached,
        ..failed(tool, text)
    }
}

fn refused(arguments: Value, text: &'static str) -> Case {
    Case {
        arguments,
        code: Some(Code::InvalidArgument),
        ..unavailable("get", Reached::No, text)
    }
}

fn cases() -> Vec<Case> {
    let both = json!({"id": "a/b", "text": "x y"});
    let one = || json!({"id": 1});
    vec![
        answered("get", both, "GET /get/a%2Fb?text=x%20y"),
        answered("missing", one(), "no such item"),
        failed("bad", "must be a number"),
        unavailable("down", Reached::Unknown, "503"),
        unavailable("denied", Reached::Answered, "401"),
        answered("large", one(), "larger than 10000 bytes"),
        answered("image", one(), "[image/png omitted, 3 bytes]"),
        answered("zipped", one(), "[answer in gzip omitted, 3 bytes]"),
        answered("empty", one(), "no content"),
        answered("echo", one(), "[redacted]"),
        refused(json!({}), "id is missing"),
        refused(json!({"id": ".."}), "'..'"),
        answered("write", json!({"id": 4, "text": "hi"}), "POST /items/4"),
    ]
}

/// R20.1, O-25: arguments go where the description says, each status means what it should, and neither the operator's
/// headers nor what is inside a broken API come back.
#[tokio::test]
async fn calls_are_made_as_described() {
    let server = Server::start(PUBLIC, |seen| answer(seen, "")).await;
    let host = host(network(Names::default()), vec![api_spec(&server.url("/"))]);
    let offer = host.offer(&acme(), SideEffectLevel::Write).await;
    assert_eq!(offer.level("shop__write"), Some(SideEffectLevel::Write));
    for case in cases() {
        let (tool, arguments) = (case.tool, case.arguments.to_string());
        let answer = host
            .call(&offer, &format!("shop__{tool}"), &arguments)
            .await;
        assert!(answer.text.contains(case.text), "{tool}: {}", answer.text);
        assert_eq!(
            (answer.code, answer.is_error, answer.reached),
            (case.code, case.is_error, case.reached),
            "{tool}: {}",
            answer.text
        );
        for secret in ["inner workings", "canary"] {
            assert!(!answer.text.contains(secret), "{}", answer.text);
        }
    }
    let seen = server.seen();
    let written = seen.iter().rfind(|seen| seen.method == Method::POST);
    let written = written.unwrap();
    let body: Value = serde_json::from_slice(&written.body).unwrap();
    assert_eq!(body, json!({"text": "hi"}));
    assert_eq!(written.headers["x-api-key"], "canary-key-7");
    host.shutdown().await;
}

/// O-26: silence ends a call at the idle limit, and an answer that only drips in at the total one.
#[tokio::test]
async fn slow_answers_are_cut_off() {
    let server = Server::start(PUBLIC, |seen| answer(seen, "")).await;
    let host = host(network(Names::default()), vec![api_spec(&server.url("/"))]);
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    for (tool, why) in [
        ("slow", "no sign of progress for 0.3 s"),
        ("drip", "within 0.9 s"),
    ] {
        let started = tokio::time::Instant::now();
        let answer = host
            .call(&offer, &format!("shop__{tool}"), r#"{"id": 1}"#)
            .await;
        assert_eq!(
            (answer.code, answer.reached),
            (Some(Code::ToolTimeout), Reached::Unknown)
        );
        assert!(answer.text.contains(why), "{}", answer.text);
        assert!(
            started.elapsed() < Duration::from_millis(1_500),
            "{:?}",
            started.elapsed()
        );
    }
    host.shutdown().await;
}

/// O-27: redirects are followed, but credentials go to no other host, and no redirect leads to an address that is not
/// allowed.
#[tokio::test]
async fn redirects_are_checked_and_carry_no_credentials_away() {
    let other = Server::start(PUBLIC, |seen| {
        format!("other saw {:?}", seen.headers.get("x-api-key")).into_response()
    })
    .await;
    let internal = canary().await;
    let (away, inside) = (other.url("/x"), internal.url("/x"));
    let server = Server::start(PUBLIC, move |seen| {
        let elsewhere = if seen.target.starts_with("/inside") {
            &inside
        } else {
            &away
        };
        if seen.method == Method::POST {
            return redirect(307, elsewhere);
        }
        answer(seen, elsewhere)
    })
    .await;
    let host = host(network(Names::default()), vec![api_spec(&server.url(""))]);
    let offer = host.offer(&acme(), SideEffectLevel::Write).await;
    let call = async |tool: &str| {
        host.call(&offer, &format!("shop__{tool}"), r#"{"id": 1}"#)
            .await
    };
    assert_eq!(call("moved").await.text, "GET /get/9");
    assert_eq!(call("away").await.text, "other saw None");
    for (tool, why) in [
        ("inside", "not allowed"),
        ("file", "to what is no http or https address"),
        ("loop", "more than 3 times"),
        ("write", "another host"),
    ] {
        let answer = call(tool).await;
        assert_eq!(
            answer.code,
            Some(Code::ToolUnavailable),
            "{tool}: {}",
            answer.text
        );
        assert!(answer.text.contains(why), "{tool}: {}", answer.text);
    }
    assert_eq!(
        call("write").await.reached,
        Reached::No,
        "307 says that nothing was done"
    );
    assert_eq!(internal.seen().len(), 0);
    host.shutdown().await;
}

/// R4.5: a write that was answered with where to read what came of it has been made, whatever comes of the reading; it
/// carries its key, by which a repetition is told from another call.
#[tokio::test]
async fn a_write_that_was_answered_is_not_taken_for_undone() {
    for (next, code) in [
        ("/down/1", Some(Code::ToolUnavailable)),
        ("/bad/1", None),
        ("/loop/1", Some(Code::ToolUnavailable)),
    ] {
        let server = Server::start(PUBLIC, move |seen| match seen.method {
            Method::POST => redirect(303, next),
            _ => answer(seen, ""),
        })
        .await;
        let host = host(network(Names::default()), vec![api_spec(&server.url(""))]);
        let offer = host.offer(&acme(), SideEffectLevel::Write).await;
        let answer = host
            .call_under(Some("run:1"), &offer, "shop__write", r#"{"id": 1}"#)
            .await;
        assert_eq!(
            (answer.code, answer.reached),
            (code, Reached::Unknown),
            "{next}: {}",
            answer.text
        );
        let seen = server.seen();
        assert_eq!(
            seen.iter()
                .filter(|seen| seen.method == Method::POST)
                .count(),
            1
        );
        assert_eq!(seen[0].headers["idempotency-key"], "run:1");
        host.shutdown().await;
    }
}

/// Bad input: arguments that do not fit the tool's schema go nowhere, and the model is told what is wrong with them.
#[tokio::test]
async fn arguments_outside_the_schema_are_not_sent() {
    let server = Server::start(PUBLIC, |seen| answer(seen, "")).await;
    let mut spec = api_spec(&server.url(""));
    let Transport::Http { tools, .. } = &mut spec.transport else {
        panic!("an HTTP API");
    };
    for tool in tools.values_mut() {
        tool.schema = json!({
            "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"],
        });
    }
    let host = host(network(Names::default()), vec![spec]);
    let offer = host.offer(&acme(), SideEffectLevel::Write).await;
    for tool in ["shop__get", "shop__write"] {
        let refused = host.call(&offer, tool, r#"{"id": "../../admin"}"#).await;
        assert_eq!(refused.code, Some(Code::InvalidArgument), "{tool}");
        assert_eq!(refused.reached, Reached::No, "{tool}");
        assert!(refused.text.contains("/id"), "{}", refused.text);
    }
    assert_eq!(server.seen().len(), 0);
    let good = host.call(&offer, "shop__get", r#"{"id": 7}"#).await;
    assert_eq!(good.text, "GET /get/7");
    host.shutdown().await;
}
