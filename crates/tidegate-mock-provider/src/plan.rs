//! Decides, without doing it, which bytes a request gets, and when. Pure.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    echo::{echo, split_inside},
    request::Request,
    scenario::{Chunking, Fault, KeyForm, Reply, Rule, Scenario, UsagePolicy},
    template,
};

/// One thing that happens to the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Wait(Duration),
    Send(Bytes),
    /// The connection breaks off.
    Cut,
    /// Nothing more, with or without comments that keep the connection alive.
    Stall {
        comments: bool,
    },
}

/// Everything that happens to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Time before the headers; `None` means that they never come.
    pub(crate) headers_after: Option<Duration>,
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<Step>,
}

impl Plan {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self {
            headers_after: Some(Duration::ZERO),
            status,
            content_type: "application/json",
            headers: Vec::new(),
            body: vec![Step::Send(Bytes::from(body.to_string()))],
        }
    }

    /// An error in OpenAI's shape.
    pub(crate) fn error(status: u16, code: Option<&str>, message: &str) -> Self {
        Self::json(status, &error_object(code, message))
    }
}

fn error_object(code: Option<&str>, message: &str) -> Value {
    json!({ "error": { "message": message, "type": "mock_error", "code": code, "param": null } })
}

/// What a rule says to a request.
struct Said {
    text: Vec<String>,
    /// Id, name and arguments.
    calls: Vec<(String, String, String)>,
    finish: String,
    usage: Option<Value>,
}

/// Makes the plan for a request that a rule matches.
pub(crate) fn plan(scenario: &Scenario, rule: &Rule, request: &Request, key: &str) -> Plan {
    let facts = request.facts(key);
    let fill = |text: &str| template::render(text, &facts, &scenario.vars);
    let said = say(&rule.reply, request, rule.fault.as_ref(), &fill);
    let first_delay = Duration::from_millis(rule.reply.first_delay_ms);
    let mut plan = match &rule.fault {
        Some(Fault::Status {
            status,
            code,
            message,
            retry_after_ms,
            echo_key,
        }) => {
            let message = echo(&fill(message), *echo_key, key);
            let mut plan = Plan::error(*status, code.as_deref(), &message);
            if let Some(ms) = retry_after_ms {
                plan.headers
                    .push(("retry-after", ms.div_ceil(1_000).to_string()));
                plan.headers.push(("retry-after-ms", ms.to_string()));
            }
            if *echo_key == Some(KeyForm::Split) {
                plan.body = split_inside(&plan.body, key);
            }
            plan
        }
        Some(Fault::WebPage) => Plan {
            content_type: "text/html",
            body: vec![Step::Send(Bytes::from_static(
                b"<!doctype html><title>Welcome</title>",
            ))],
            ..Plan::json(200, &Value::Null)
        },
        Some(Fault::Redirect { location }) => Plan {
            headers: vec![("location", location.clone())],
            ..Plan::error(307, None, "moved")
        },
        fault if request.stream => streamed(&said, rule, request, fault.as_ref(), &fill, key),
        fault => whole(&said, rule, request, fault.as_ref(), &fill, key),
    };
    plan.headers_after = match rule.fault {
        Some(Fault::Stall {
            after_chunks: None, ..
        }) => None,
        _ => Some(first_delay),
    };
    plan
}

fn say(
    reply: &Reply,
    request: &Request,
    fault: Option<&Fault>,
    fill: &impl Fn(&str) -> String,
) -> Said {
    let text = chunks(&fill(&reply.text), reply.chunk);
    let mut calls: Vec<_> = reply
        .tools
        .iter()
        .filter_map(|wish| {
            let name = request.offered(&wish.tool)?;
            let arguments = filled(&toml::Value::Table(wish.arguments.clone()), fill).to_string();
            Some((name.to_owned(), arguments))
        })
        .enumerate()
        .map(|(n, (name, arguments))| {
            (
                format!("call_{}_{n}", request.messages.len()),
                name,
                arguments,
            )
        })
        .collect();
    let cut = matches!(fault, Some(Fault::CutArguments));
    if cut {
        for (_, _, arguments) in &mut calls {
            arguments.truncate(arguments.len().saturating_sub(1));
        }
    }
    let reason = if cut {
        "length"
    } else if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    let wanted = match reply.usage {
        UsagePolicy::Always => true,
        UsagePolicy::Never => false,
        UsagePolicy::OnRequest => request.wants_usage(),
    };
    let words: usize = request
        .messages
        .iter()
        .map(|message| message.text().split_whitespace().count())
        .sum();
    let input = reply.input_tokens.unwrap_or(words as u64);
    let output = reply
        .output_tokens
        .unwrap_or((text.len() + calls.len()) as u64);
    Said {
        text,
        calls,
        finish: reply.finish.clone().unwrap_or_else(|| reason.to_owned()),
        usage: wanted.then(|| {
            json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input.saturating_add(output) })
        }),
    }
}

fn chunks(text: &str, chunking: Chunking) -> Vec<String> {
    match chunking {
        _ if text.is_empty() => Vec::new(),
        Chunking::Whole => vec![text.to_owned()],
        Chunking::Char => text.chars().map(String::from).collect(),
        Chunking::Word => text
            .split_inclusive(char::is_whitespace)
            .map(str::to_owned)
            .collect(),
    }
}

fn filled(value: &toml::Value, fill: &impl Fn(&str) -> String) -> Value {
    match value {
        toml::Value::String(text) => fill(text).into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(flag) => (*flag).into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => items.iter().map(|item| filled(item, fill)).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(name, item)| (name.clone(), filled(item, fill)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

/// The body of a streamed answer.
fn streamed(
    said: &Said,
    rule: &Rule,
    request: &Request,
    fault: Option<&Fault>,
    fill: &impl Fn(&str) -> String,
    key: &str,
) -> Plan {
    let delay = Duration::from_millis(rule.reply.delay_ms);
    let opening = frame(
        request,
        &json!({ "role": "assistant", "content": "" }),
        None,
    );
    let mut body = vec![Step::Send(opening)];
    let pieces = pieces(said, request, rule.reply.fragments);
    let sent = fault.map_or(pieces.len(), after_chunks);
    for piece in pieces.into_iter().take(sent) {
        if !delay.is_zero() {
            body.push(Step::Wait(delay));
        }
        body.push(Step::Send(piece));
    }
    match fault {
        None | Some(Fault::CutArguments) => {
            body.push(Step::Send(frame(request, &json!({}), Some(&said.finish))));
            if let Some(usage) = &said.usage {
                let mut last = envelope(request, "chat.completion.chunk", &json!([]));
                last["usage"] = usage.clone();
                body.push(Step::Send(sse(&last)));
            }
            body.push(Step::Send(Bytes::from_static(b"data: [DONE]\n\n")));
        }
        Some(fault) => body.extend(last_step(fault, fill, key)),
    }
    Plan {
        content_type: "text/event-stream",
        body,
        ..Plan::json(200, &Value::Null)
    }
}

/// What a fault does to a stream in the place of its end.
fn last_step(fault: &Fault, fill: &impl Fn(&str) -> String, key: &str) -> Option<Step> {
    match fault {
        Fault::Cut { .. } => Some(Step::Cut),
        Fault::Stall { comments, .. } => Some(Step::Stall {
            comments: *comments,
        }),
        Fault::MalformedJson { .. } => {
            Some(Step::Send(Bytes::from_static(b"data: {\"choices\": [\n\n")))
        }
        Fault::MalformedSse { .. } => Some(Step::Send(Bytes::from_static(b"data: \xff\xfe\n\n"))),
        Fault::ErrorObject {
            code,
            message,
            echo_key,
            ..
        } => {
            let message = echo(&fill(message), *echo_key, key);
            Some(Step::Send(sse(&error_object(code.as_deref(), &message))))
        }
        _ => None,
    }
}

/// Everything between the opening and the end of a stream.
fn pieces(said: &Said, request: &Request, parts: usize) -> Vec<Bytes> {
    let mut pieces: Vec<Bytes> = said
        .text
        .iter()
        .map(|text| frame(request, &json!({ "content": text }), None))
        .collect();
    for (index, (id, name, arguments)) in said.calls.iter().enumerate() {
        for (n, part) in fragments(arguments, parts).into_iter().enumerate() {
            let call = if n == 0 {
                json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": part } })
            } else {
                json!({ "index": index, "function": { "arguments": part } })
            };
            pieces.push(frame(request, &json!({ "tool_calls": [call] }), None));
        }
    }
    pieces
}

fn frame(request: &Request, delta: &Value, finish: Option<&str>) -> Bytes {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    sse(&envelope(
        request,
        "chat.completion.chunk",
        &json!([choice]),
    ))
}

/// The body of an answer in one piece. It takes as long as the stream would.
fn whole(
    said: &Said,
    rule: &Rule,
    request: &Request,
    fault: Option<&Fault>,
    fill: &impl Fn(&str) -> String,
    key: &str,
) -> Plan {
    let calls: Vec<Value> = said
        .calls
        .iter()
        .map(|(id, name, arguments)| {
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        })
        .collect();
    let mut message = json!({ "role": "assistant", "content": said.text.concat() });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": said.finish });
    let mut answer = envelope(request, "chat.completion", &json!([choice]));
    if let Some(usage) = &said.usage {
        answer["usage"] = usage.clone();
    }
    let text = answer.to_string();
    let half = Bytes::from(text[..text.floor_char_boundary(text.len() / 2)].to_owned());
    let pieces = u32::try_from(said.text.len()).unwrap_or(u32::MAX);
    let wait = Step::Wait(Duration::from_millis(rule.reply.delay_ms).saturating_mul(pieces));
    let mut plan = Plan::json(200, &Value::Null);
    plan.body = match fault {
        Some(Fault::Cut { .. }) => vec![Step::Send(half), Step::Cut],
        Some(Fault::Stall { .. }) => vec![Step::Send(half), Step::Stall { comments: false }],
        Some(Fault::MalformedJson { .. } | Fault::MalformedSse { .. } | Fault::NoEnd { .. }) => {
            vec![Step::Send(half)]
        }
        Some(Fault::ErrorObject {
            code,
            message,
            echo_key,
            ..
        }) => {
            let message = echo(&fill(message), *echo_key, key);
            vec![Step::Send(Bytes::from(
                error_object(code.as_deref(), &message).to_string(),
            ))]
        }
        _ => vec![wait, Step::Send(Bytes::from(text))],
    };
    plan
}

fn after_chunks(fault: &Fault) -> usize {
    match fault {
        Fault::Cut { after_chunks }
        | Fault::NoEnd { after_chunks }
        | Fault::MalformedJson { after_chunks }
        | Fault::MalformedSse { after_chunks }
        | Fault::ErrorObject { after_chunks, .. } => *after_chunks,
        Fault::Stall { after_chunks, .. } => after_chunks.unwrap_or(0),
        Fault::CutArguments => usize::MAX,
        Fault::Status { .. } | Fault::WebPage | Fault::Redirect { .. } => 0,
    }
}

fn envelope(request: &Request, object: &str, choices: &Value) -> Value {
    // A fixed time: the same request gets the same bytes.
    json!({
        "id": "chatcmpl-mock",
        "object": object,
        "created": 1_700_000_000,
        "model": request.model,
        "choices": choices,
    })
}

fn sse(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

fn fragments(text: &str, count: usize) -> Vec<&str> {
    let size = text.len().div_ceil(count.max(1)).max(1);
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > size {
        let cut = rest
            .floor_char_boundary(size)
            .max(rest.chars().next().map_or(1, char::len_utf8));
        let (part, after) = rest.split_at(cut);
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests;
