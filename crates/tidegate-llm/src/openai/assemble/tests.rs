//! Answers as endpoints really cut them up.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn assembler() -> Assembler {
    Assembler::new(Scrubber::default())
}

fn read(pieces: &[Value]) -> Result<Vec<Delta>, ProviderFault> {
    let mut assembler = assembler();
    let mut deltas = Vec::new();
    for piece in pieces {
        deltas.extend(assembler.piece("message", &piece.to_string())?);
    }
    deltas.extend(assembler.end()?);
    Ok(deltas)
}

fn said(delta: impl Into<Value>) -> Value {
    let delta: Value = delta.into();
    json!({ "model": "m-1", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn done(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn call(id: &str, name: &str, arguments: &str) -> Delta {
    Delta::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}

#[test]
fn opening_frames_say_nothing_and_text_keeps_its_order() {
    let deltas = read(&[
        said(json!({ "role": "assistant", "content": "" })),
        said(json!({ "content": "Hel" })),
        said(json!({ "content": [{ "type": "text", "text": "lo" }] })),
        done("stop"),
        json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 0 } }),
    ]);
    let finish = Finish {
        reason: FinishReason::Stop,
        usage: Usage::Exact(TokenCounts {
            input: 3,
            output: 0,
        }),
        model: Some("m-1".to_owned()),
    };
    let text = |text: &str| Delta::Text(text.to_owned());
    assert_eq!(
        deltas,
        Ok(vec![text("Hel"), text("lo"), Delta::Finished(finish)])
    );
}

#[test]
fn fragments_of_two_calls_are_put_together_by_index() {
    let piece = |index: u64, body: Value| {
        let mut body = body;
        body["index"] = index.into();
        said(json!({ "tool_calls": [body] }))
    };
    let deltas = read(&[
        piece(
            0,
            json!({ "id": "a", "function": { "name": "git_log", "arguments": "" } }),
        ),
        piece(0, json!({ "function": { "arguments": "{\"max" } })),
        piece(
            1,
            json!({ "id": "b", "function": { "name": "now", "arguments": "{}" } }),
        ),
        piece(0, json!({ "function": { "arguments": "\":5}" } })),
        done("tool_calls"),
    ])
    .unwrap();
    assert_eq!(
        deltas
            .iter()
            .filter(|delta| **delta == Delta::Progress)
            .count(),
        4
    );
    assert_eq!(
        deltas[4..6],
        [call("a", "git_log", "{\"max\":5}"), call("b", "now", "{}")]
    );
    assert!(
        matches!(&deltas[6], Delta::Finished(finish) if finish.reason == FinishReason::ToolCalls && finish.usage == Usage::Unknown)
    );
}

#[test]
fn calls_without_index_id_or_arguments_are_understood() {
    let deltas = read(&[
        said(json!({ "tool_calls": [{ "id": "a", "function": { "name": "x", "arguments": { "k": 1 } } }] })),
        said(json!({ "tool_calls": [{ "id": "b", "function": { "name": "y", "arguments": "{\"k\"" } }] })),
        said(json!({ "tool_calls": [{ "function": { "arguments": ":2}" } }] })),
        said(json!({ "tool_calls": [{ "index": 7, "function": { "name": "z" } }] })),
        done("stop"),
    ])
    .unwrap();
    let calls: Vec<_> = deltas
        .into_iter()
        .filter(|delta| matches!(delta, Delta::ToolCall(_)))
        .collect();
    assert_eq!(
        calls,
        [
            call("a", "x", "{\"k\":1}"),
            call("b", "y", "{\"k\":2}"),
            call("call_2", "z", "{}")
        ]
    );
}

#[test]
fn one_index_with_two_ids_is_two_calls() {
    let deltas = read(&[
        said(json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "x", "arguments": "{}" } }] })),
        said(json!({ "tool_calls": [{ "index": 0, "id": "b", "function": { "name": "y", "arguments": "{}" } }] })),
        done("tool_calls"),
    ])
    .unwrap();
    assert_eq!(deltas[2..4], [call("a", "x", "{}"), call("b", "y", "{}")]);
}

/// R13.5: a tool call with cut-off arguments is never executed.
#[test]
fn cut_off_arguments_are_never_handed_on() {
    let open = said(
        json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "rm", "arguments": "{\"path\":\"/" } }] }),
    );
    let fault = read(&[open.clone(), done("length")]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadAnswer);
    assert!(
        fault.message.contains("cut off; it is not executed"),
        "{}",
        fault.message
    );
    assert_eq!(read(&[open]).unwrap_err().kind, FaultKind::CutStream);
    for arguments in ["[1]", "{\"a\":}", "7"] {
        let piece = said(
            json!({ "tool_calls": [{ "id": "a", "function": { "name": "x", "arguments": arguments } }] }),
        );
        assert_eq!(
            read(&[piece, done("tool_calls")]).unwrap_err().kind,
            FaultKind::BadAnswer
        );
    }
}

#[test]
fn an_answer_without_an_end_is_cut() {
    assert_eq!(
        read(&[said(json!({ "content": "Hel" }))]).unwrap_err().kind,
        FaultKind::CutStream
    );
    assert_eq!(read(&[]).unwrap_err().kind, FaultKind::CutStream);
}

#[test]
fn errors_and_nonsense_inside_a_stream_are_reported() {
    let error = json!({ "error": { "type": "server_error", "message": "boom" } });
    assert_eq!(read(&[error]).unwrap_err().kind, FaultKind::Overloaded);
    let mut assembler = assembler();
    assert_eq!(
        assembler.piece("error", "plain words").unwrap_err().message,
        "plain words"
    );
    assert_eq!(
        assembler.piece("message", "{broken").unwrap_err().kind,
        FaultKind::BadAnswer
    );
    assert_eq!(
        assembler.piece("message", " ").map(|deltas| deltas.len()),
        Ok(0)
    );
}

#[test]
fn whole_answers_are_read_like_streams() {
    let body = json!({
        "model": "m-1",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "Hello" } }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 2 },
    });
    let deltas = assembler().whole(body.to_string().as_bytes()).unwrap();
    assert_eq!(deltas[0], Delta::Text("Hello".to_owned()));
    assert!(
        matches!(&deltas[1], Delta::Finished(finish) if finish.usage == Usage::Exact(TokenCounts { input: 1, output: 2 }))
    );
    for nonsense in [
        "",
        "[]",
        "{}",
        "{\"choices\":[]}",
        "{\"error\":{\"message\":\"no\"}}",
    ] {
        assert_eq!(
            assembler().whole(nonsense.as_bytes()).unwrap_err().kind,
            FaultKind::BadAnswer,
            "{nonsense}"
        );
    }
}

#[test]
fn more_tool_calls_than_allowed_are_refused() {
    let calls: Vec<Value> = (0..=TOOL_CALLS_MAX)
        .map(|n| json!({ "index": n, "id": format!("c{n}"), "function": { "name": "x" } }))
        .collect();
    assert!(read(&[said(json!({ "tool_calls": calls })), done("tool_calls")]).is_err());
}

proptest! {
    /// However arguments are cut into fragments, they arrive whole.
    #[test]
    fn fragmentation_changes_nothing(value in ".{0,40}", cuts in proptest::collection::vec(0usize..60, 0..8)) {
        let arguments = json!({ "text": value }).to_string();
        let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut <= arguments.len() && arguments.is_char_boundary(*cut)).collect();
        cuts.extend([0, arguments.len()]);
        cuts.sort_unstable();
        let mut pieces: Vec<Value> = vec![said(json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "x" } }] }))];
        pieces.extend(cuts.windows(2).map(|pair| {
            said(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": &arguments[pair[0]..pair[1]] } }] }))
        }));
        pieces.push(done("tool_calls"));
        let deltas = read(&pieces).unwrap();
        prop_assert!(deltas.contains(&call("a", "x", &arguments)));
    }

    #[test]
    fn no_piece_makes_it_panic(event in "(message|error|x)", data in ".{0,80}") {
        let mut assembler = assembler();
        let _ignored = assembler.piece(&event, &data);
        let _ignored = assembler.whole(data.as_bytes());
        let _ignored = assembler.end();
    }
}

/// Figures that cannot be are no figures: the answer stands, and its use is unknown.
#[test]
fn figures_that_cannot_be_believed_are_unknown_and_spoil_nothing() {
    let usage = |input: Value, output: Value| json!({ "choices": [], "usage": { "prompt_tokens": input, "completion_tokens": output } });
    let counted = json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 1 } });
    for absurd in [
        usage(
            1_000_000_000_000_000_000_u64.into(),
            9_000_000_000_000_000_000_u64.into(),
        ),
        usage(3.into(), 1_000_000_001.into()),
        usage(1e30.into(), 1.into()),
        usage((-1).into(), 1.into()),
        usage(1.into(), "many".into()),
    ] {
        let name = absurd.to_string();
        let deltas = read(&[
            said(json!({ "content": "Hello" })),
            counted.clone(),
            done("stop"),
            absurd,
        ])
        .expect("a good answer");
        assert!(
            matches!(&deltas[..], [Delta::Text(_), Delta::Finished(finish)] if finish.usage == Usage::Unknown),
            "{name}: {deltas:?}"
        );
    }
}

/// A figure that is no number of JSON spoils nothing either.
#[test]
fn a_figure_beyond_all_numbers_is_unknown() {
    let mut assembler = assembler();
    let piece = said(json!({ "content": "Hello" })).to_string();
    assembler.piece("message", &piece).expect("a piece");
    for usage in [r#"{"prompt_tokens":1e400,"completion_tokens":1}"#, "-1e400"] {
        let piece = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        assembler.piece("message", &piece).expect(usage);
    }
    assembler
        .piece("message", &done("stop").to_string())
        .expect("the end");
    let end = assembler.end().expect("a good answer");
    assert!(
        matches!(&end[..], [Delta::Finished(finish)] if finish.usage == Usage::Unknown),
        "{end:?}"
    );
}
