//! What is read of a request, and which rule of the scenario it matches. Pure.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    scenario::{OneOrMany, Rule, Scenario, When},
    template::Facts,
};

/// What is read of a request.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Request {
    #[serde(default)]
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) messages: Vec<RequestMessage>,
    #[serde(default)]
    pub(crate) tools: Vec<Value>,
    #[serde(default)]
    pub(crate) stream: bool,
    #[serde(default)]
    pub(crate) stream_options: Value,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct RequestMessage {
    #[serde(default)]
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_calls: Vec<Value>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

impl RequestMessage {
    pub(crate) fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts
                .iter()
                .filter_map(|part| part.get("text").and_then(Value::as_str))
                .collect(),
            _ => String::new(),
        }
    }
}

impl Request {
    fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools
            .iter()
            .filter_map(|tool| tool.pointer("/function/name").and_then(Value::as_str))
    }

    /// The offered tool that the script means: the first wish that any offered name ends with.
    pub(crate) fn offered(&self, wishes: &OneOrMany) -> Option<&str> {
        wishes
            .iter()
            .find_map(|wish| self.tool_names().find(|name| name.ends_with(wish)))
    }

    /// The last tool message after the last message of a user, and the name of its tool.
    fn tool_result(&self) -> Option<(String, String)> {
        let after = self
            .messages
            .iter()
            .rposition(|message| message.role == "user")
            .map_or(0, |at| at + 1);
        let last = self.messages[after..]
            .iter()
            .rfind(|message| message.role == "tool")?;
        let id = last.tool_call_id.as_deref().unwrap_or_default();
        let name = self
            .messages
            .iter()
            .flat_map(|message| &message.tool_calls)
            .find(|call| call.get("id").and_then(Value::as_str) == Some(id))
            .and_then(|call| call.pointer("/function/name").and_then(Value::as_str));
        Some((name.unwrap_or_default().to_owned(), last.text()))
    }

    fn last_user_text(&self) -> String {
        self.messages
            .iter()
            .rfind(|message| message.role == "user")
            .map(RequestMessage::text)
            .unwrap_or_default()
    }

    pub(crate) fn wants_usage(&self) -> bool {
        !self.stream || self.stream_options.get("include_usage") == Some(&Value::Bool(true))
    }

    /// What placeholders stand for.
    pub(crate) fn facts(&self, key: &str) -> Facts {
        let tool_result = self.tool_result().map(|(_, text)| text).unwrap_or_default();
        Facts {
            text: self.last_user_text(),
            tool_result,
            key: key.to_owned(),
        }
    }
}

/// How often each rule's conditions have held so far, in the order of the rules.
#[derive(Debug, Default)]
pub(crate) struct Counters(Vec<u32>);

impl Counters {
    /// The first rule that matches.
    pub(crate) fn select<'a>(
        &mut self,
        scenario: &'a Scenario,
        request: &Request,
    ) -> Option<&'a Rule> {
        self.0.resize(scenario.rules.len(), 0);
        scenario
            .rules
            .iter()
            .zip(&mut self.0)
            .find_map(|(rule, count)| {
                if !holds(&rule.when, request) {
                    return None;
                }
                *count += 1;
                let counted = rule.when.nth.is_none_or(|nth| *count == nth)
                    && rule.when.first.is_none_or(|n| *count <= n);
                counted.then_some(rule)
            })
    }
}

fn holds(when: &When, request: &Request) -> bool {
    let text = request.last_user_text().to_lowercase();
    let result = request.tool_result();
    let system = || {
        request
            .messages
            .iter()
            .filter(|message| message.role == "system")
            .map(RequestMessage::text)
    };
    when.model
        .as_ref()
        .is_none_or(|model| *model == request.model)
        && when.text_contains.as_ref().is_none_or(|wanted| {
            wanted
                .iter()
                .any(|part| text.contains(&part.to_lowercase()))
        })
        && when
            .system_contains
            .as_ref()
            .is_none_or(|part| system().any(|text| text.contains(part)))
        && when
            .tool_result
            .is_none_or(|wanted| wanted == result.is_some())
        && when.tool_result_of.as_ref().is_none_or(|wanted| {
            result
                .as_ref()
                .is_some_and(|(name, _)| wanted.iter().any(|suffix| name.ends_with(suffix)))
        })
        && when
            .tool_offered
            .as_ref()
            .is_none_or(|wanted| request.offered(wanted).is_some())
        && when.stream.is_none_or(|wanted| wanted == request.stream)
}
