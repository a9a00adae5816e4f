//! What the table says about one setting.

use std::path::PathBuf;

use tidegate_model::api::LimitScope;

use super::rule::Rule;

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The field of [`super::Settings`].
    pub name: &'static str,
    /// The environment variable.
    pub env: &'static str,
    /// The key in the file.
    pub key: &'static str,
    /// Whether it governs this process alone, or whatever all processes share (give all of them the same value).
    pub scope: LimitScope,
    /// Whether its value is never shown.
    pub secret: bool,
    /// One line of meaning.
    pub meaning: &'static str,
    /// What the file may hold for it.
    pub takes: Takes,
    /// What is allowed besides its type.
    pub rule: Rule,
}

impl Setting {
    /// The long flag without dashes; secrets have none.
    pub fn flag(&self) -> Option<String> {
        (!self.secret).then(|| self.name.replace('_', "-"))
    }

    /// What is allowed, in words.
    pub fn allowed(&self) -> String {
        self.rule.allowed().unwrap_or_else(|| self.takes.allowed())
    }
}

/// The shape of a value in the file; in the environment and in flags everything is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// A string.
    Text,
    /// An integer.
    Integer,
    /// `true`/`false`, or `"on"`/`"off"`.
    Switch,
    /// An array of strings, or one string with commas.
    List,
    /// One of a few words.
    OneOf(&'static [&'static str]),
}

impl Takes {
    fn allowed(self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Integer => "an integer".to_owned(),
            Self::Switch => "on or off".to_owned(),
            Self::List => "a list, comma separated".to_owned(),
            Self::OneOf(words) => format!("one of: {}", words.join(", ")),
        }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody said anything else.
    Default,
    /// This file.
    File(PathBuf),
    /// This variable.
    Environment(&'static str),
    /// This flag, with its dashes.
    Flag(String),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}
