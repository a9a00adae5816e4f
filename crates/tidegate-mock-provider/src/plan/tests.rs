//! Which rule answers, and with which bytes.

use super::*;
use crate::request::Counters;

fn scenario(rules: &str) -> Scenario {
    Scenario::parse(rules).unwrap()
}

fn request(value: Value) -> Request {
    serde_json::from_value(value).unwrap()
}

fn ask(text: &str) -> Request {
    request(json!({ "model": "m", "messages": [{ "role": "user", "content": text }] }))
}

fn body(plan: &Plan) -> String {
    plan.body
        .iter()
        .filter_map(|step| match step {
            Step::Send(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        })
        .collect()
}

#[test]
fn the_first_rule_that_matches_answers_and_is_counted() {
    let scenario = scenario(
        r#"
        [[rule]]
        name = "second"
        when = { text_contains = ["HELLO", "hi"], nth = 2 }
        reply = { text = "again" }
        [[rule]]
        name = "early"
        when = { first = 1 }
        reply = { text = "first" }
        [[rule]]
        name = "rest"
        reply = { text = "x" }
        "#,
    );
    let mut counters = Counters::default();
    let mut names = Vec::new();
    for text in ["Hello", "oh", "hi", "hi"] {
        names.push(
            counters
                .select(&scenario, &ask(text))
                .unwrap()
                .name
                .as_str(),
        );
    }
    assert_eq!(names, ["early", "rest", "second", "rest"]);
}

#[test]
fn tools_are_chosen_by_what_is_offered() {
    let scenario = scenario(
        r#"
        [vars]
        repo = "."
        [[rule]]
        name = "look"
        when = { tool_offered = "git_log", tool_result = false }
        reply = { tools = [{ tool = ["read_file", "git_log"], arguments = { repo_path = "{{var.repo}}", max_count = 3 } }] }
        [[rule]]
        name = "tell"
        when = { tool_result_of = "git_log" }
        reply = { text = "It says: {{tool_result_lines:1}}" }
        "#,
    );
    let tools = json!([{ "type": "function", "function": { "name": "git__git_log" } }]);
    let mut counters = Counters::default();
    let first = request(
        json!({ "model": "m", "tools": tools, "messages": [{ "role": "user", "content": "log?" }] }),
    );
    let rule = counters.select(&scenario, &first).unwrap();
    let text = body(&plan(&scenario, rule, &first, ""));
    let answer: Value = serde_json::from_str(&text).unwrap();
    let call = answer.pointer("/choices/0/message/tool_calls/0").unwrap();
    assert_eq!(call["function"]["name"], "git__git_log");
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({ "repo_path": ".", "max_count": 3 }));
    assert_eq!(
        answer.pointer("/choices/0/finish_reason").unwrap(),
        "tool_calls"
    );
    let second = request(json!({ "model": "m", "tools": tools, "messages": [
        { "role": "user", "content": "log?" },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": call["id"], "content": "commit 1\ncommit 2" },
    ] }));
    let rule = counters.select(&scenario, &second).unwrap();
    assert!(body(&plan(&scenario, rule, &second, "")).contains("It says: commit 1\""));
}

#[test]
fn usage_is_sent_as_the_script_says() {
    for (policy, stream, asked, expected) in [
        ("on_request", true, false, false),
        ("on_request", true, true, true),
        ("on_request", false, false, true),
        ("always", true, false, true),
        ("never", false, true, false),
    ] {
        let scenario = scenario(&format!(
            "[[rule]]\nname = \"a\"\nreply = {{ text = \"one two\", usage = \"{policy}\", input_tokens = 0 }}\n"
        ));
        let request = request(json!({
            "stream": stream,
            "stream_options": { "include_usage": asked },
            "messages": [{ "role": "user", "content": "x" }],
        }));
        let text = body(&plan(&scenario, &scenario.rules[0], &request, ""));
        assert_eq!(
            text.contains("\"prompt_tokens\":0"),
            expected,
            "{policy} {stream} {asked}: {text}"
        );
    }
}

#[test]
fn fragments_cover_the_whole_text() {
    for (text, count) in [
        ("", 3),
        ("{\"a\":\"日本語\"}", 4),
        ("abc", 1),
        ("abc", 0),
        ("ab", 9),
    ] {
        let parts = fragments(text, count);
        assert_eq!(parts.concat(), text);
        assert!(parts.len() <= count.max(1) + 1, "{parts:?}");
    }
}

#[test]
fn the_demo_calls_a_tool_and_then_tells_what_it_found() {
    let scenario = Scenario::demo();
    let mut counters = Counters::default();
    let tools = json!([
        { "type": "function", "function": { "name": "git_git_log" } },
        { "type": "function", "function": { "name": "git_git_status" } },
    ]);
    let question = json!({ "role": "user", "content": "What changed in this repository lately?" });
    let first =
        request(json!({ "model": "demo", "stream": true, "tools": tools, "messages": [question] }));
    let rule = counters.select(&scenario, &first).unwrap();
    assert!(!rule.reply.tools.is_empty(), "{}", rule.name);
    let second = request(
        json!({ "model": "demo", "stream": true, "tools": tools, "messages": [
        question,
        { "role": "assistant", "tool_calls": [{ "id": "c", "function": { "name": "git_git_log", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "c", "content": "Commit: 1644fdd" },
    ] }),
    );
    let rule = counters.select(&scenario, &second).unwrap();
    let plan = plan(&scenario, rule, &second, "");
    assert!(body(&plan).contains("1644fdd"));
    let slow = request(
        json!({ "model": "demo", "stream": true, "messages": [{ "role": "user", "content": "Take your time: explain slowly" }] }),
    );
    let rule = counters.select(&scenario, &slow).unwrap();
    let waits: Duration = super::plan(&scenario, rule, &slow, "")
        .body
        .iter()
        .map(|step| {
            if let Step::Wait(time) = step {
                *time
            } else {
                Duration::ZERO
            }
        })
        .sum();
    assert!(
        waits >= Duration::from_secs(15) && waits <= Duration::from_secs(30),
        "{waits:?}"
    );
}
