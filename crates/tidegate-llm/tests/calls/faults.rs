//! What goes wrong at a provider, each kind through the whole stack.

use std::time::Duration;

use tidegate_llm::{
    CallContext, CallOutcome, ChatRequest, FaultKind, LlmError, RetryPolicy, TokenCounts, Usage,
};

use crate::support::{fault, foreground, request, rig, tool};

fn script(fault: &str) -> String {
    format!(
        "[[rule]]\nname = \"a\"\nreply = {{ text = \"one two three four\", tools = [{{ tool = \"t\", arguments = {{ a = 1 }} }}] }}\nfault = {{ {fault} }}\n"
    )
}

/// What goes wrong, which kind it is, and the status that came with it.
const FAULTS: [(&str, FaultKind, Option<u16>); 15] = [
    (
        "kind = \"status\", status = 429, code = \"rate_limit_exceeded\"",
        FaultKind::Throttled,
        Some(429),
    ),
    (
        "kind = \"status\", status = 429, code = \"insufficient_quota\"",
        FaultKind::CreditExhausted,
        Some(429),
    ),
    (
        "kind = \"status\", status = 400, code = \"context_length_exceeded\"",
        FaultKind::TooLong,
        Some(400),
    ),
    (
        "kind = \"status\", status = 400, message = \"bad parameter\"",
        FaultKind::Refused,
        Some(400),
    ),
    (
        "kind = \"status\", status = 401",
        FaultKind::Auth,
        Some(401),
    ),
    (
        "kind = \"status\", status = 500",
        FaultKind::Overloaded,
        Some(500),
    ),
    (
        "kind = \"status\", status = 503",
        FaultKind::Overloaded,
        Some(503),
    ),
    (
        "kind = \"redirect\", location = \"http://127.0.0.1:9/v1\"",
        FaultKind::Refused,
        Some(307),
    ),
    (
        "kind = \"error_object\", code = \"server_error\"",
        FaultKind::Overloaded,
        None,
    ),
    (
        "kind = \"error_object\", message = \"oh\", after_chunks = 2",
        FaultKind::BadAnswer,
        None,
    ),
    ("kind = \"cut\"", FaultKind::CutStream, None),
    (
        "kind = \"cut\", after_chunks = 2",
        FaultKind::CutStream,
        None,
    ),
    (
        "kind = \"malformed_json\", after_chunks = 1",
        FaultKind::BadAnswer,
        None,
    ),
    ("kind = \"web_page\"", FaultKind::BadAnswer, None),
    ("kind = \"cut_arguments\"", FaultKind::BadAnswer, None),
];

#[tokio::test]
async fn every_fault_has_its_kind_streamed_and_whole() {
    for (script_fault, kind, status) in FAULTS {
        for stream in [true, false] {
            let rig = rig(&script(script_fault), |_| ()).await;
            let request = ChatRequest {
                stream,
                tools: vec![tool("t")],
                ..request("hi")
            };
            let fault = fault(rig.ask_with(request, &foreground()).await);
            assert_eq!(
                (fault.kind, fault.status),
                (kind, status),
                "{script_fault}, stream {stream}: {fault}"
            );
            assert_eq!(rig.records.outcomes(), [kind.as_str()], "{script_fault}");
            assert_eq!(rig.in_flight(), 0, "{script_fault}");
        }
    }
}

#[tokio::test]
async fn a_stream_without_an_end_or_of_no_text_is_not_an_answer() {
    for (script_fault, kind) in [
        ("kind = \"no_end\", after_chunks = 3", FaultKind::CutStream),
        (
            "kind = \"malformed_sse\", after_chunks = 1",
            FaultKind::BadAnswer,
        ),
    ] {
        let rig = rig(&script(script_fault), |_| ()).await;
        let request = ChatRequest {
            tools: vec![tool("t")],
            ..request("hi")
        };
        assert_eq!(fault(rig.ask_with(request, &foreground()).await).kind, kind);
    }
}

/// R13.7: a cut stream is a lower bound of what was used.
#[tokio::test]
async fn a_cut_stream_counts_what_had_arrived() {
    let rig = rig(&script("kind = \"cut\", after_chunks = 3"), |_| ()).await;
    fault(rig.ask("hi").await);
    assert_eq!(
        rig.records.only().usage,
        Usage::LowerBound(TokenCounts {
            input: 0,
            output: 3
        })
    );
}

#[tokio::test]
async fn nobody_listening_is_unreachable_with_a_remedy() {
    let rig = rig(&script("kind = \"cut\""), |config| {
        config.base_url = "http://127.0.0.1:1/v1".to_owned();
    })
    .await;
    let fault = fault(rig.ask("hi").await);
    assert_eq!(fault.kind, FaultKind::Unreachable);
    assert!(fault.to_string().contains("check base_url"), "{fault}");
}

/// R13.2: a provider that stalls, before the headers, in the stream, or behind comments that keep the line open.
#[tokio::test]
async fn a_stall_ends_at_its_limit_and_frees_the_slot() {
    for (script_fault, text) in [
        ("kind = \"stall\"", "nothing arrived for 0.7 s"),
        (
            "kind = \"stall\", after_chunks = 0",
            "nothing arrived for 0.7 s",
        ),
        (
            "kind = \"stall\", after_chunks = 2",
            "nothing arrived for 0.3 s",
        ),
        (
            "kind = \"stall\", after_chunks = 2, comments = true",
            "nothing arrived for 0.3 s",
        ),
    ] {
        let rig = rig(&script(script_fault), |config| {
            config.timeouts.first_content = Duration::from_millis(700);
            config.timeouts.idle = Duration::from_millis(300);
        })
        .await;
        let fault = fault(rig.ask("hi").await);
        assert_eq!(fault.kind, FaultKind::Timeout, "{script_fault}");
        assert_eq!(fault.message, text, "{script_fault}");
        assert_eq!(
            (rig.in_flight(), rig.records.outcomes()),
            (0, vec!["timeout"]),
            "{script_fault}"
        );
        assert!(
            rig.mock
                .until(crate::support::SOON, |stats| stats.aborted == 1)
                .await,
            "{script_fault}"
        );
    }
}

/// A caller that reads slowly is no provider that stalls.
#[tokio::test]
async fn time_that_the_caller_takes_is_not_the_providers() {
    use futures::StreamExt;
    let rig = rig(
        "[[rule]]\nname = \"a\"\nreply = { text = \"a b c\" }\n",
        |config| {
            config.timeouts.idle = Duration::from_millis(300);
        },
    )
    .await;
    let mut stream = rig
        .model()
        .chat(request("hi"), &foreground())
        .await
        .unwrap();
    while let Some(delta) = stream.next().await {
        delta.unwrap();
        tokio::time::sleep(Duration::from_millis(350)).await;
    }
    assert_eq!(rig.records.outcomes(), ["answered"]);
}

/// O-28: the deadline of the caller bounds waits, tries and the stream together.
#[tokio::test]
async fn the_deadline_ends_a_call_wherever_it_is() {
    for script_fault in [
        "kind = \"stall\"",
        "kind = \"stall\", after_chunks = 2",
        "kind = \"status\", status = 503",
    ] {
        let rig = rig(&script(script_fault), |config| {
            config.retry = RetryPolicy {
                tries: 50,
                base: Duration::from_millis(80),
                max: Duration::from_millis(80),
            };
        })
        .await;
        let begun = tokio::time::Instant::now();
        let deadline = begun + Duration::from_millis(200);
        let call = CallContext {
            deadline: Some(deadline),
            ..foreground()
        };
        let error = rig.ask_with(request("hi"), &call).await.unwrap_err();
        assert!(
            begun.elapsed() < Duration::from_millis(900),
            "{script_fault}"
        );
        assert!(
            matches!(error, LlmError::DeadlineExceeded | LlmError::Provider(_)),
            "{error}"
        );
        assert_eq!(rig.in_flight(), 0);
    }
}

#[tokio::test]
async fn the_total_time_of_a_provider_ends_an_endless_answer() {
    let rig = rig(
        "[[rule]]\nname = \"a\"\nreply = { text = \"a b c d e f g h\", delay_ms = 150 }\n",
        |config| {
            config.timeouts.total = Duration::from_millis(800);
        },
    )
    .await;
    let error = rig.ask("hi").await.unwrap_err();
    assert_eq!(error, LlmError::DeadlineExceeded);
    let record = rig.records.only();
    assert_eq!(record.outcome, CallOutcome::DeadlineExceeded);
    assert!(matches!(record.usage, Usage::LowerBound(tokens) if tokens.output >= 1));
}

const FAILS_FIRST: &str = r#"
[[rule]]
name = "fail"
when = { first = 2 }
fault = { kind = "status", status = 503 }
[[rule]]
name = "ok"
reply = { text = "fine" }
"#;

/// R13.5: tries are bounded, each is recorded of its own.
#[tokio::test]
async fn what_may_pass_is_tried_again_and_each_try_is_recorded() {
    let tries = |tries| RetryPolicy {
        tries,
        base: Duration::from_millis(1),
        max: Duration::from_millis(1),
    };
    let rig = rig(FAILS_FIRST, |config| config.retry = tries(3)).await;
    assert_eq!(rig.ask("hi").await.unwrap().text, "fine");
    assert_eq!(
        rig.records.outcomes(),
        ["overloaded", "overloaded", "answered"]
    );
    let numbers: Vec<_> = rig
        .records
        .all()
        .iter()
        .map(|record| record.try_number)
        .collect();
    assert_eq!(numbers, [1, 2, 3]);

    let rig = crate::support::rig(FAILS_FIRST, |config| config.retry = tries(2)).await;
    assert_eq!(fault(rig.ask("hi").await).kind, FaultKind::Overloaded);
    assert_eq!(rig.mock.stats().requests, 2);
}

/// R13.5: none after a piece of the answer has been handed on, and none where trying again cannot help.
#[tokio::test]
async fn nothing_is_tried_again_after_the_first_piece_or_in_vain() {
    for script_fault in [
        "kind = \"cut\", after_chunks = 1",
        "kind = \"stall\", after_chunks = 1",
        "kind = \"error_object\", code = \"server_error\", after_chunks = 1",
        "kind = \"status\", status = 401",
        "kind = \"status\", status = 400",
        "kind = \"web_page\"",
        "kind = \"status\", status = 429, retry_after_ms = 60000",
    ] {
        let rig = rig(&script(script_fault), |config| {
            config.retry = RetryPolicy {
                tries: 3,
                base: Duration::from_millis(1),
                max: Duration::from_millis(1),
            };
            config.timeouts.idle = Duration::from_millis(50);
        })
        .await;
        fault(rig.ask("hi").await);
        assert_eq!(rig.mock.stats().requests, 1, "{script_fault}");
    }
}

#[tokio::test]
async fn a_cut_before_the_first_piece_is_tried_again() {
    let scenario = "[[rule]]\nname = \"cut\"\nwhen = { nth = 1 }\nfault = { kind = \"cut\" }\n[[rule]]\nname = \"ok\"\nreply = { text = \"fine\" }\n";
    let rig = rig(scenario, |config| {
        config.retry = RetryPolicy {
            tries: 2,
            base: Duration::from_millis(1),
            max: Duration::from_millis(1),
        };
    })
    .await;
    assert_eq!(rig.ask("hi").await.unwrap().text, "fine");
    assert_eq!(rig.records.outcomes(), ["cut_stream", "answered"]);
}

#[test]
fn backoff_doubles_and_stays_jittered_at_its_greatest() {
    let policy = RetryPolicy::default();
    let at = |done, unit| policy.backoff(done, unit).as_millis();
    assert_eq!(
        [at(1, 1.0), at(2, 1.0), at(3, 1.0), at(30, 1.0)],
        [500, 1_000, 2_000, 8_000]
    );
    assert_eq!([at(1, 0.0), at(30, 0.0), at(30, 0.5)], [0, 0, 4_000]);
}
