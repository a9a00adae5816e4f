//! The scenario file: rules in order, the first that matches answers. Unknown fields and placeholders are errors that
//! name where they stand.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use crate::template;

/// The scenario behind `make demo`.
const DEMO: &str = include_str!("../scenarios/demo.toml");

/// A scenario that cannot be meant.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("the scenario file {path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is no scenario.
    #[error("the scenario is not valid: {0}")]
    Invalid(#[from] toml::de::Error),
    /// A rule contradicts itself.
    #[error("rule {rule:?} of the scenario: {problem}")]
    Rule {
        /// The rule's name.
        rule: String,
        /// What is wrong, and the remedy.
        problem: String,
    },
}

/// A whole scenario.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called.
    #[serde(default)]
    pub name: String,
    /// The key that requests must carry; any or none where absent.
    #[serde(default)]
    pub api_key: Option<String>,
    /// The models it lists and serves; any where empty.
    #[serde(default)]
    pub models: Vec<String>,
    /// Values for `{{var.NAME}}`.
    #[serde(default)]
    pub vars: BTreeMap<String, String>,
    /// The rules.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it is called in `/__stats`.
    pub name: String,
    /// What a request must look like; all conditions must hold.
    #[serde(default)]
    pub when: When,
    /// What it says.
    #[serde(default)]
    pub reply: Reply,
    /// What goes wrong.
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// Conditions of a rule. Those that are absent hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// The model is this one.
    pub model: Option<String>,
    /// The last message of a user holds one of these, whatever the case.
    pub text_contains: Option<OneOrMany>,
    /// A system message holds this.
    pub system_contains: Option<String>,
    /// Whether tools have answered since the last message of a user.
    pub tool_result: Option<bool>,
    /// The last tool that answered ends with one of these.
    pub tool_result_of: Option<OneOrMany>,
    /// One of the offered tools ends with one of these.
    pub tool_offered: Option<OneOrMany>,
    /// Whether a stream is asked for.
    pub stream: Option<bool>,
    /// It is the n-th request (from 1) for which everything else holds.
    pub nth: Option<u32>,
    /// It is one of the first so many requests for which everything else holds.
    pub first: Option<u32>,
}

/// One text or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several, in order of preference.
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(one) => std::slice::from_ref(one).iter(),
            Self::Many(many) => many.iter(),
        }
        .map(String::as_str)
    }
}

/// What a rule says, and how fast.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The text, a template.
    #[serde(default)]
    pub text: String,
    /// Tools to call.
    #[serde(default)]
    pub tools: Vec<ToolUse>,
    /// How the text is cut up.
    #[serde(default)]
    pub chunk: Chunking,
    /// Time before the answer begins.
    #[serde(default)]
    pub first_delay_ms: u64,
    /// Time before each piece.
    #[serde(default)]
    pub delay_ms: u64,
    /// Into how many pieces the arguments of a tool call are cut; 0 and 1 leave them whole.
    #[serde(default)]
    pub fragments: usize,
    /// When figures are sent.
    #[serde(default)]
    pub usage: UsagePolicy,
    /// The input tokens it claims; counted in words where absent.
    pub input_tokens: Option<u64>,
    /// The output tokens it claims; counted in pieces where absent.
    pub output_tokens: Option<u64>,
    /// The reason it gives for stopping; `stop` or `tool_calls` where absent.
    pub finish: Option<String>,
}

/// A tool to call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolUse {
    /// The first offered tool whose name ends with one of these is called; none where none is offered.
    pub tool: OneOrMany,
    /// Its arguments; texts in it are templates.
    #[serde(default)]
    pub arguments: toml::Table,
}

/// How a text is cut into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chunking {
    /// A word and the space after it.
    #[default]
    Word,
    /// A character.
    Char,
    /// Everything at once.
    Whole,
}

/// When figures are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsagePolicy {
    /// In a stream only where `stream_options.include_usage` asks for them.
    #[default]
    OnRequest,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What goes wrong.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// An error status instead of an answer.
    Status {
        /// The status.
        status: u16,
        /// The code in the error object.
        code: Option<String>,
        /// The message in the error object, a template.
        #[serde(default)]
        message: String,
        /// Sends `Retry-After` (whole seconds, rounded up) and `retry-after-ms`.
        retry_after_ms: Option<u64>,
        /// Repeats the request's key in the message in this form.
        echo_key: Option<KeyForm>,
    },
    /// Status 200 with an error object, at once or after some pieces.
    ErrorObject {
        /// The code in the error object.
        code: Option<String>,
        /// The message in the error object, a template.
        #[serde(default)]
        message: String,
        /// Repeats the request's key in the message in this form.
        echo_key: Option<KeyForm>,
        /// Pieces sent before.
        #[serde(default)]
        after_chunks: usize,
    },
    /// The connection breaks off.
    Cut {
        /// Pieces sent before.
        #[serde(default)]
        after_chunks: usize,
    },
    /// The stream ends as if all were well, without an end.
    NoEnd {
        /// Pieces sent before.
        #[serde(default)]
        after_chunks: usize,
    },
    /// Nothing more comes, and the connection stays open.
    Stall {
        /// Pieces sent before; absent means not even the headers come.
        after_chunks: Option<usize>,
        /// Whether comments keep the connection alive meanwhile.
        #[serde(default)]
        comments: bool,
    },
    /// A piece that is no JSON.
    MalformedJson {
        /// Pieces sent before.
        #[serde(default)]
        after_chunks: usize,
    },
    /// Bytes that are no event stream.
    MalformedSse {
        /// Pieces sent before.
        #[serde(default)]
        after_chunks: usize,
    },
    /// A web page instead of an answer.
    WebPage,
    /// The arguments of the tool call stop in the middle, and the answer ends with `length`.
    CutArguments,
    /// A redirect to this address.
    Redirect {
        /// The address.
        location: String,
    },
}

/// A form in which the request's key is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyForm {
    /// As it is.
    Plain,
    /// URL-encoded.
    Url,
    /// In base64.
    Base64,
    /// In base64 as part of something longer.
    Basic,
    /// Inside a quoted URL.
    QuotedUrl,
    /// As it is, in a body that arrives in two parts cut inside the key.
    Split,
}

impl Scenario {
    /// The scenario behind `make demo`.
    pub fn demo() -> Self {
        // Proven to parse by a test; an empty scenario answers every request with a clear error.
        Self::parse(DEMO).unwrap_or_default()
    }

    /// The text of the demo scenario, to start a scenario of one's own from.
    pub const fn demo_text() -> &'static str {
        DEMO
    }

    /// Reads a scenario file.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|source| ScenarioError::Unreadable {
            path: path.display().to_string(),
            source,
        })?;
        Self::parse(&text)
    }

    /// Reads the text of a scenario.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text)?;
        for rule in &scenario.rules {
            rule.check(&scenario.vars)
                .map_err(|problem| ScenarioError::Rule {
                    rule: rule.name.clone(),
                    problem,
                })?;
        }
        Ok(scenario)
    }

    /// Sets a value for `{{var.NAME}}`.
    #[must_use]
    pub fn with_var(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    /// Demands this key of every request.
    #[must_use]
    pub fn with_api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }
}

impl Rule {
    fn check(&self, vars: &BTreeMap<String, String>) -> Result<(), String> {
        let mut texts = vec![self.reply.text.as_str()];
        match &self.fault {
            Some(Fault::Status {
                message, status, ..
            }) => {
                if !(300..600).contains(status) {
                    return Err(format!(
                        "status {status} is no error; use 300 to 599, or kind = \"error_object\""
                    ));
                }
                texts.push(message);
            }
            Some(Fault::ErrorObject { message, .. }) => texts.push(message),
            Some(Fault::CutArguments) if self.reply.tools.is_empty() => {
                return Err("cut_arguments needs reply.tools".to_owned());
            }
            None if self.reply.text.is_empty() && self.reply.tools.is_empty() => {
                return Err("it says nothing; give reply.text, reply.tools or fault".to_owned());
            }
            _ => {}
        }
        if self.when.nth == Some(0) || self.when.first == Some(0) {
            return Err("when.nth and when.first count from 1".to_owned());
        }
        for text in texts {
            template::check(text, vars)?;
        }
        for tool in &self.reply.tools {
            check_value(&toml::Value::Table(tool.arguments.clone()), vars)?;
        }
        Ok(())
    }
}

fn check_value(value: &toml::Value, vars: &BTreeMap<String, String>) -> Result<(), String> {
    match value {
        toml::Value::String(text) => template::check(text, vars),
        toml::Value::Array(items) => items.iter().try_for_each(|item| check_value(item, vars)),
        toml::Value::Table(table) => table.values().try_for_each(|item| check_value(item, vars)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_scenario_is_valid() {
        let scenario = Scenario::parse(DEMO).expect("the demo scenario parses");
        assert!(scenario.rules.len() >= 5);
    }

    #[test]
    fn mistakes_are_named_with_their_remedy() {
        for (text, expected) in [
            ("[[rule]]\nname = \"a\"\n", "it says nothing"),
            (
                "[[rule]]\nname = \"a\"\nreply = { text = \"{{nmae}}\" }\n",
                "{{nmae}}",
            ),
            (
                "[[rule]]\nname = \"a\"\nreply = { text = \"{{var.repo}}\" }\n",
                "vars",
            ),
            (
                "[[rule]]\nname = \"a\"\nrepply = { text = \"x\" }\n",
                "repply",
            ),
            (
                "[[rule]]\nname = \"a\"\nfault = { kind = \"status\", status = 200 }\n",
                "error_object",
            ),
            (
                "[[rule]]\nname = \"a\"\nfault = { kind = \"explode\" }\n",
                "explode",
            ),
            (
                "[[rule]]\nname = \"a\"\nwhen = { nth = 0 }\nreply = { text = \"x\" }\n",
                "from 1",
            ),
            (
                "[[rule]]\nname = \"a\"\nfault = { kind = \"cut_arguments\" }\n",
                "reply.tools",
            ),
        ] {
            let error = Scenario::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
