//! What the built-in executor reads of a run that is no turn of a conversation.
//!
//! Its doors check with the function that it reads with, so that what was accepted can be asked of a model.

use std::borrow::Cow;

use serde_json::Value;

/// An input with nothing in it that a model could be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the built-in executor asks a model what the input says: give a text that is not blank, {{\"text\": \"…\"}}, or an \
     object or an array that is not empty; found {found}"
)]
pub struct NoPrompt {
    /// The member of the input that is at fault; nothing where it is the input itself.
    pub member: Option<&'static str>,
    found: &'static str,
}

/// The input as the model is asked: a text as it is, `{"text": …}` its text, other objects and arrays as JSON.
pub fn prompt(input: &Value) -> Result<Cow<'_, str>, NoPrompt> {
    match input {
        Value::String(text) => said(text, None),
        Value::Object(members) if members.len() == 1 && members.contains_key("text") => {
            match &members["text"] {
                Value::String(text) => said(text, Some("text")),
                other => Err(no_prompt(other, Some("text"))),
            }
        }
        Value::Object(members) if !members.is_empty() => Ok(input.to_string().into()),
        Value::Array(items) if !items.is_empty() => Ok(input.to_string().into()),
        other => Err(no_prompt(other, None)),
    }
}

fn said<'a>(text: &'a str, member: Option<&'static str>) -> Result<Cow<'a, str>, NoPrompt> {
    if text.trim().is_empty() {
        let found = "a blank text";
        return Err(NoPrompt { member, found });
    }
    Ok(text.into())
}

fn no_prompt(value: &Value, member: Option<&'static str>) -> NoPrompt {
    let found = match value {
        Value::Null => "null, or no input at all",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(items) if items.is_empty() => "an empty array",
        Value::Array(_) => "an array",
        Value::Object(members) if members.is_empty() => "an empty object",
        Value::Object(_) => "an object",
    };
    NoPrompt { member, found }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_is_a_text_or_a_document() {
        for (input, asked) in [
            (json!("hello"), "hello"),
            (json!({"text": " hello "}), " hello "),
            (
                json!({"text": "hello", "n": 1}),
                r#"{"n":1,"text":"hello"}"#,
            ),
            (json!({"text": 1, "n": 1}), r#"{"n":1,"text":1}"#),
            (json!({"report": "sales"}), r#"{"report":"sales"}"#),
            (json!([1]), "[1]"),
        ] {
            assert_eq!(prompt(&input).as_deref(), Ok(asked));
        }
    }

    /// Bad input: what no model can be asked, with the member at fault and what stands there.
    #[test]
    fn what_asks_nothing_is_no_prompt() {
        for (input, member, found) in [
            (json!(null), None, "null, or no input at all"),
            (json!(true), None, "a boolean"),
            (json!(7), None, "a number"),
            (json!(" \n"), None, "a blank text"),
            (json!({}), None, "an empty object"),
            (json!([]), None, "an empty array"),
            (json!({"text": ""}), Some("text"), "a blank text"),
            (
                json!({"text": null}),
                Some("text"),
                "null, or no input at all",
            ),
            (json!({"text": ["a"]}), Some("text"), "an array"),
        ] {
            assert_eq!(prompt(&input), Err(NoPrompt { member, found }), "{input}");
        }
    }
}
