//! What arrives when all goes well.

use futures::StreamExt;
use tidegate_llm::{
    CallOutcome, ChatRequest, Delta, FinishReason, LlmError, Message, TokenCounts, ToolCall,
    ToolChoice, Usage,
};

use crate::support::{Rig, foreground, name, request, rig, tool};

const HELLO: &str = r#"
[[rule]]
name = "hello"
reply = { text = "Hello there, friend", input_tokens = 7, output_tokens = 3 }
"#;

/// R13.2: one call, one record.
#[tokio::test]
async fn a_stream_arrives_in_pieces_with_its_figures_and_is_recorded_once() {
    let rig = rig(HELLO, |_| ()).await;
    let mut stream = rig
        .model()
        .chat(request("hi"), &foreground())
        .await
        .unwrap();
    let mut pieces = Vec::new();
    let mut finish = None;
    while let Some(delta) = stream.next().await {
        match delta.unwrap() {
            Delta::Text(text) => pieces.push(text),
            Delta::Finished(end) => finish = Some(end),
            other => panic!("{other:?}"),
        }
        if finish.is_none() {
            assert_eq!(rig.in_flight(), 1, "the slot is held until the stream ends");
        }
    }
    // A `d` may be the first character of the key's base64: it is held back until the end.
    assert_eq!(pieces, ["Hello ", "there, ", "frien", "d"]);
    let usage = Usage::Exact(TokenCounts {
        input: 7,
        output: 3,
    });
    let finish = finish.unwrap();
    assert_eq!(
        (finish.reason, finish.usage, finish.model.as_deref()),
        (FinishReason::Stop, usage, Some("m"))
    );
    assert_eq!(rig.in_flight(), 0);
    let record = rig.records.only();
    assert_eq!(
        (record.outcome, record.usage, record.try_number),
        (CallOutcome::Answered, usage, 1)
    );
    assert_eq!(
        (record.provider.as_str(), record.model.as_str()),
        ("mock", "m")
    );
    assert!(
        record
            .first_content
            .is_some_and(|first| first <= record.held)
    );
    let sent = &rig.mock.requests()[0];
    assert_eq!(sent["stream_options"]["include_usage"], true);
    assert_eq!(sent["messages"][1]["content"], "hi");
    assert!(sent.get("tools").is_none() && sent.get("max_tokens").is_none());
}

#[tokio::test]
async fn an_answer_in_one_piece_is_the_same_answer() {
    let rig = rig(HELLO, |_| ()).await;
    let whole = ChatRequest {
        stream: false,
        ..request("hi")
    };
    let answer = rig.ask_with(whole, &foreground()).await.unwrap();
    let streamed = rig.ask("hi").await.unwrap();
    assert_eq!(answer, streamed);
    assert_eq!(answer.text, "Hello there, friend");
    assert_eq!(rig.records.outcomes(), ["answered", "answered"]);
}

#[tokio::test]
async fn tool_calls_arrive_whole_and_their_results_go_back() {
    let rig = rig(
        r#"
        [[rule]]
        name = "tell"
        when = { tool_result = true }
        reply = { text = "{{tool_result}}" }
        [[rule]]
        name = "call"
        reply = { text = "One moment. ", fragments = 5, tools = [
            { tool = "git_log", arguments = { max_count = 3, path = "a b" } },
            { tool = "now" },
        ] }
        "#,
        |_| (),
    )
    .await;
    for stream in [true, false] {
        let tools = vec![tool("git__git_log"), tool("clock__now")];
        let mut question = ChatRequest {
            tools,
            stream,
            tool_choice: ToolChoice::Required,
            ..request("look")
        };
        let answer = rig.ask_with(question.clone(), &foreground()).await.unwrap();
        assert_eq!(answer.finish.reason, FinishReason::ToolCalls);
        let [first, second] = answer.tool_calls.as_slice() else {
            panic!("{answer:?}")
        };
        assert_eq!(
            (first.name.as_str(), second.name.as_str()),
            ("git__git_log", "clock__now")
        );
        let arguments: serde_json::Value = serde_json::from_str(&first.arguments).unwrap();
        assert_eq!(
            arguments,
            serde_json::json!({ "max_count": 3, "path": "a b" })
        );
        assert_eq!(second.arguments, "{}");
        let result = Message::Tool {
            call_id: first.id.clone(),
            text: "three commits".to_owned(),
        };
        question.messages.push(Message::Assistant {
            text: answer.text,
            tool_calls: answer.tool_calls.clone(),
        });
        question.messages.push(result);
        let told = rig.ask_with(question, &foreground()).await.unwrap();
        assert_eq!(told.text, "three commits");
    }
    let sent = rig.mock.requests();
    assert_eq!(sent[0]["tool_choice"], "required");
    assert_eq!(sent[1]["messages"][2]["tool_calls"][0]["type"], "function");
    assert_eq!(sent[1]["messages"][3]["role"], "tool");
}

/// R13.7: exact where the provider says so, zero included; unknown where it says nothing.
#[tokio::test]
async fn figures_are_what_the_provider_says_or_unknown() {
    for (reply, ask, expected) in [
        ("usage = \"never\"", true, Usage::Unknown),
        (
            "usage = \"always\", input_tokens = 0, output_tokens = 0",
            true,
            Usage::NOTHING,
        ),
        ("usage = \"on_request\"", false, Usage::Unknown),
        (
            "usage = \"always\", input_tokens = 5, output_tokens = 1",
            false,
            Usage::Exact(TokenCounts {
                input: 5,
                output: 1,
            }),
        ),
    ] {
        let scenario = format!("[[rule]]\nname = \"a\"\nreply = {{ text = \"x\", {reply} }}\n");
        let rig = rig(&scenario, |config| config.ask_for_usage = ask).await;
        assert_eq!(
            rig.ask("hi").await.unwrap().finish.usage,
            expected,
            "{reply}"
        );
        assert_eq!(rig.records.only().usage, expected, "{reply}");
    }
}

#[tokio::test]
async fn what_was_asked_never_shows_in_debug_texts() {
    let call = ToolCall {
        id: "1".to_owned(),
        name: "t".to_owned(),
        arguments: "{\"private\":1}".to_owned(),
    };
    let mut request = request("a private question");
    request.messages.push(Message::Assistant {
        text: "a private answer".to_owned(),
        tool_calls: vec![call],
    });
    let shown = format!("{request:?} {:?}", request.messages);
    assert!(!shown.contains("private"), "{shown}");
}

#[tokio::test]
async fn a_name_nobody_configured_is_an_error_with_a_remedy() {
    let rig: Rig = rig(HELLO, |_| ()).await;
    let error = rig.providers.model(&name("gpt")).unwrap_err();
    assert!(matches!(&error, LlmError::UnknownModel { alias } if alias == "gpt"));
    assert!(error.to_string().contains("tidegate model list"), "{error}");
    assert_eq!(error.code().as_str(), "MODEL_NOT_CONFIGURED");
}
