//! MCP over streamable HTTP, with a server that misbehaves.

use std::time::Duration;

use axum::response::{Html, IntoResponse};
use serde_json::Value;
use tidegate_agent::tools::{Offer, Reached, ServerState};
use tidegate_model::{Code, api::SideEffectLevel};
use tokio::time::{Instant, sleep};

use crate::{
    rig::{Mcp, Names, PUBLIC, Server, host, mcp_spec, network},
    support::{acme, offered, until},
};

const READS: [&str; 8] = [
    "read",
    "progress",
    "resumed",
    "cut",
    "echo",
    "broken",
    "hang",
    "of_session_1",
];

async fn offer(host: &tidegate_agent::ToolHost) -> Offer {
    host.offer(&acme(), SideEffectLevel::Write).await
}

/// R20.1: tools behind a URL are mounted and called like any others, with the operator's headers.
#[tokio::test]
async fn tools_behind_a_url_are_called() {
    let (mcp, server) = Mcp::start(PUBLIC).await;
    let host = host(
        network(Names::default()),
        vec![mcp_spec(&server.url("/mcp"), &READS)],
    );
    let offer = offer(&host).await;
    assert!(
        offered(&offer).contains(&"notes__read".to_owned()),
        "{:?}",
        host.view()
    );
    assert_eq!(offer.level("notes__add"), Some(SideEffectLevel::Write));
    let answer = host.call(&offer, "notes__read", "{}").await;
    assert_eq!(
        (answer.code, answer.text.as_str()),
        (None, "read was called")
    );
    assert_eq!(answer.reached, Reached::Answered);
    let answer = host.call_under(Some("run:1"), &offer, "notes__add", "{}");
    assert_eq!(answer.await.code, None);
    let seen = server.seen();
    let bodies = seen.iter().map(|seen| serde_json::from_slice(&seen.body));
    let bodies: Vec<Value> = bodies.filter_map(Result::ok).collect();
    let keys = bodies.iter().map(|body| &body["params"]["_meta"]);
    let keys: Vec<_> = keys
        .filter_map(|meta| meta["tidegate/idempotencyKey"].as_str())
        .collect();
    assert_eq!(keys, ["run:1"]);
    assert!(
        seen.iter()
            .all(|seen| seen.headers["authorization"] == "Bearer canary-token")
    );
    assert_eq!(mcp.calls(), 2);
    host.shutdown().await;
    let last = server.seen().pop().unwrap();
    assert_eq!(last.method, "DELETE", "the session is given back");
}

/// R20.1: a session that the server forgot is begun again once; what was refused with it is repeated and nothing else,
/// and the tools are listed anew.
#[tokio::test]
async fn an_expired_session_is_begun_again() {
    let (mcp, server) = Mcp::start(PUBLIC).await;
    let host = host(
        network(Names::default()),
        vec![mcp_spec(&server.url("/mcp"), &READS)],
    );
    let before = offer(&host).await;
    mcp.forget();
    let answer = host.call(&before, "notes__add", "{}").await;
    assert_eq!(
        (answer.code, answer.text.as_str()),
        (None, "add was called")
    );
    assert_eq!((mcp.sessions(), mcp.calls()), (2, 1), "looked at once");
    until("the tools of the new session are known", || {
        host.view()[0]
            .tools
            .iter()
            .any(|tool| tool.name == "of_session_2")
    })
    .await;
    assert_eq!(
        host.call(&before, "notes__of_session_1", "{}").await.code,
        Some(Code::ToolUnavailable)
    );
    host.shutdown().await;
}

/// R20.1: a stream that breaks is resumed where the server numbered its events; else the call has failed, is not
/// repeated, and nobody claims to know whether it happened.
#[tokio::test]
async fn a_broken_stream_is_resumed_or_the_call_has_failed() {
    let (mcp, server) = Mcp::start(PUBLIC).await;
    let host = host(
        network(Names::default()),
        vec![mcp_spec(&server.url("/mcp"), &READS)],
    );
    let offer = offer(&host).await;
    let answer = host.call(&offer, "notes__resumed", "{}").await;
    assert_eq!(
        (answer.code, answer.text.as_str()),
        (None, "told on resumption")
    );
    assert_eq!(mcp.calls(), 1);
    for (tool, calls) in [("notes__cut", 2), ("notes__broken", 3)] {
        let answer = host.call(&offer, tool, "{}").await;
        assert_eq!(answer.code, Some(Code::ToolUnavailable), "{}", answer.text);
        assert_eq!(answer.reached, Reached::Unknown, "{tool}: {}", answer.text);
        assert_eq!(mcp.calls(), calls, "{tool} is not repeated");
    }
    host.shutdown().await;
}

/// O-25: what the operator's headers hold comes back in no answer and no error.
#[tokio::test]
async fn headers_do_not_come_back() {
    let (_, server) = Mcp::start(PUBLIC).await;
    let host = host(
        network(Names::default()),
        vec![mcp_spec(&server.url("/mcp"), &READS)],
    );
    let offer = offer(&host).await;
    for tool in ["notes__echo", "notes__broken"] {
        let answer = host.call(&offer, tool, "{}").await;
        assert!(!answer.text.contains("canary-token"), "{}", answer.text);
        assert!(!answer.text.contains("127.0.0.1"), "{}", answer.text);
    }
    host.shutdown().await;
}

/// O-26: progress puts off the idle limit and never the total one; silence ends a call at the idle limit.
#[tokio::test]
async fn progress_does_not_move_the_total_limit() {
    let (_, server) = Mcp::start(PUBLIC).await;
    let mut spec = mcp_spec(&server.url("/mcp"), &READS);
    spec.idle_timeout = Duration::from_millis(150);
    spec.call_timeout = Duration::from_millis(600);
    let host = host(network(Names::default()), vec![spec]);
    let mut offer = offer(&host).await;
    for (tool, least, most, why) in [
        ("notes__progress", 600, 1_500, "did not answer within 0.6 s"),
        ("notes__hang", 150, 550, "no sign of progress for 0.15 s"),
    ]
    .repeat(5)
    {
        while offer.is_empty() {
            // Too many calls in a row came to nothing: the server is connected to anew.
            sleep(Duration::from_millis(20)).await;
            offer = self::offer(&host).await;
        }
        let started = Instant::now();
        let answer = host.call(&offer, tool, "{}").await;
        if answer.code == Some(Code::ToolUnavailable) {
            continue;
        }
        assert_eq!(answer.code, Some(Code::ToolTimeout), "{}", answer.text);
        assert!(answer.text.contains(why), "{}", answer.text);
        let took = u64::try_from(started.elapsed().as_millis()).unwrap();
        assert!((least..most).contains(&took), "{tool} took {took} ms");
    }
    host.shutdown().await;
}

/// O-26: a server that answers nothing, or nothing that is MCP, is down with a reason, is tried again with growing
/// pauses, and holds up no turn that comes later.
#[tokio::test]
async fn servers_that_do_not_speak_mcp_are_down() {
    let web = Server::start(PUBLIC, |_| Html("hello").into_response()).await;
    let host = host(
        network(Names::default()),
        vec![mcp_spec(&web.url("/"), &READS)],
    );
    until("it is down", || {
        matches!(host.view()[0].state, ServerState::Down { .. })
    })
    .await;
    let ServerState::Down { reason, retry_in } = host.view().remove(0).state else {
        return;
    };
    assert!(
        reason.contains("check the URL") && retry_in.is_some(),
        "{reason}"
    );
    let started = Instant::now();
    let offer = offer(&host).await;
    assert!(started.elapsed() < Duration::from_secs(1));
    assert!(offer.is_empty());
    let missing = offer.missing().unwrap();
    assert_eq!(missing["code"], "TOOL_UNAVAILABLE");
    assert_eq!(missing["servers"][0]["server"], "notes");
    assert!(
        !missing.to_string().contains("http"),
        "why is for the operator: {missing}"
    );
    let tries = web.seen().len();
    until("it is tried again", || web.seen().len() > tries + 1).await;
    host.shutdown().await;
}
