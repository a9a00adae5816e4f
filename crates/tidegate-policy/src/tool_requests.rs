//! What an HTTP tool sends for some arguments, and what the status of the answer means.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use tidegate_model::api::{HttpMethod, HttpTool, StatusMeaning};

/// A path and a query with places for arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    path: Vec<Part>,
    /// Name and value of each pair, as written; a pair whose argument is absent is left out.
    query: Vec<Vec<Part>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Argument(String),
}

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRequest {
    /// Path and query, encoded, to be appended to the base URL.
    pub target: String,
    /// The JSON body.
    pub body: Option<Value>,
}

impl Template {
    /// Reads `/notes/{id}?lang={lang}`. The error is half a sentence that follows the name of the field.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err("must begin with '/'".to_owned());
        }
        if let Some(bad) = text
            .chars()
            .find(|c| !c.is_ascii_graphic() || "#\\\"<>".contains(*c))
        {
            return Err(format!("must not hold {bad:?}; encode it"));
        }
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        if path.split('/').any(is_dot_segment) {
            return Err("must not hold the segment '.' or '..'".to_owned());
        }
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Ok(Self {
            path: parts(path)?,
            query: pairs.map(parts).collect::<Result<_, _>>()?,
        })
    }

    /// Arguments that the path needs: without them there is no address.
    pub fn needed(&self) -> BTreeSet<&str> {
        arguments(&self.path).collect()
    }

    /// Every argument with a place in it.
    pub fn arguments(&self) -> BTreeSet<&str> {
        let query = self.query.iter().flat_map(|pair| arguments(pair));
        arguments(&self.path).chain(query).collect()
    }

    /// The address for these arguments.
    fn fill(&self, arguments: &Map<String, Value>) -> Result<String, String> {
        let mut target = String::new();
        for part in &self.path {
            match part {
                Part::Text(text) => target.push_str(text),
                Part::Argument(name) => {
                    let value = arguments.get(name).filter(|value| !value.is_null());
                    let value = value.ok_or_else(|| format!("{name} is missing"))?;
                    target.push_str(&encoded(&scalar(name, value)?));
                }
            }
        }
        // An argument must not lead to another resource than the operator named.
        if target.split('/').any(is_dot_segment) {
            return Err(
                "an argument that is part of the address must not be '.' or '..'".to_owned(),
            );
        }
        if self
            .path
            .iter()
            .any(|part| matches!(part, Part::Argument(_)))
            && target.contains("//")
        {
            return Err("an argument that is part of the address must not be empty".to_owned());
        }
        let mut separator = '?';
        for pair in &self.query {
            if let Some(text) = filled(pair, arguments)? {
                target.push(separator);
                target.push_str(&text);
                separator = '&';
            }
        }
        Ok(target)
    }
}

/// The request for these arguments: those with a place in the path go there, the others into the query or the body.
/// The error tells the model what to do better.
pub fn request(tool: &HttpTool, arguments: &Map<String, Value>) -> Result<ToolRequest, String> {
    let template = Template::parse(&tool.path).map_err(|error| format!("its path {error}"))?;
    let required = tool.schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !arguments.contains_key(name) {
            return Err(format!("the argument {name} is missing"));
        }
    }
    if tool.schema["additionalProperties"] == false
        && let Some(name) = arguments
            .keys()
            .find(|name| tool.schema["properties"].get(name).is_none())
    {
        let name: String = name.chars().take(100).collect();
        return Err(format!("there is no argument {name}"));
    }
    let mut target = template.fill(arguments)?;
    let placed = template.arguments();
    let rest = arguments
        .iter()
        .filter(|(name, _)| !placed.contains(name.as_str()));
    match tool.method {
        HttpMethod::Get | HttpMethod::Delete => {
            for (name, value) in rest {
                append(&mut target, name, value);
            }
            Ok(ToolRequest { target, body: None })
        }
        HttpMethod::Post | HttpMethod::Put | HttpMethod::Patch => {
            let body: Map<_, _> = rest
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            Ok(ToolRequest {
                target,
                body: Some(Value::Object(body)),
            })
        }
    }
}

/// What a status means: what the operator says, else the usual.
pub fn meaning(tool: &HttpTool, status: u16) -> StatusMeaning {
    let named = tool.statuses.get(&status.to_string()).copied();
    named.unwrap_or(match status {
        200..=299 => StatusMeaning::Answer,
        401 | 403 | 407 | 408 | 429 | 500..=599 => StatusMeaning::Unavailable,
        _ => StatusMeaning::Failed,
    })
}

fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else {
            return Err("has a '{' without '}'".to_owned());
        };
        if name.is_empty()
            || !name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        {
            return Err(
                "names an argument that is not made of letters, digits, '_', '-' and '.'"
                    .to_owned(),
            );
        }
        if before.contains('}') {
            return Err("has a '}' without '{'".to_owned());
        }
        parts.push(Part::Text(before.to_owned()));
        parts.push(Part::Argument(name.to_owned()));
        rest = behind;
    }
    if rest.contains('}') {
        return Err("has a '}' without '{'".to_owned());
    }
    parts.push(Part::Text(rest.to_owned()));
    parts.retain(|part| *part != Part::Text(String::new()));
    Ok(parts)
}

fn arguments(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        Part::Argument(name) => Some(name.as_str()),
        Part::Text(_) => None,
    })
}

fn filled(pair: &[Part], arguments: &Map<String, Value>) -> Result<Option<String>, String> {
    let mut text = String::new();
    for part in pair {
        match part {
            Part::Text(more) => text.push_str(more),
            Part::Argument(name) => match arguments.get(name) {
                None | Some(Value::Null) => return Ok(None),
                Some(value) => text.push_str(&encoded(&scalar(name, value)?)),
            },
        }
    }
    Ok(Some(text))
}

/// As URL parsers understand them, the encoded forms included.
fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

fn scalar(name: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(format!("{name} must be a text, a number or a boolean")),
    }
}

/// Query parameters: lists are repeated, objects are JSON, absent is left out.
fn append(target: &mut String, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Array(items) => {
            for item in items {
                append(target, name, item);
            }
        }
        _ => {
            target.push(if target.contains('?') { '&' } else { '?' });
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), ToOwned::to_owned);
            target.push_str(&encoded(name));
            target.push('=');
            target.push_str(&encoded(&text));
        }
    }
}

/// Everything but the letters that mean themselves everywhere.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn tool(method: HttpMethod, path: &str) -> HttpTool {
        HttpTool {
            description: String::new(),
            method,
            path: path.to_owned(),
            schema: json!({ "type": "object" }),
            statuses: [("404".to_owned(), StatusMeaning::Answer)].into(),
            max_bytes: None,
        }
    }

    fn target(path: &str, arguments: Value) -> Result<String, String> {
        let Value::Object(arguments) = arguments else {
            return Err("no object".to_owned());
        };
        request(&tool(HttpMethod::Get, path), &arguments).map(|request| request.target)
    }

    /// R20.1: arguments go where the operator put them, encoded.
    #[test]
    fn arguments_have_their_places() {
        for (path, arguments, expected) in [
            ("/notes", json!({}), "/notes"),
            ("/notes/{id}", json!({"id": 5}), "/notes/5"),
            (
                "/notes/{id}",
                json!({"id": "a b/c?d#é"}),
                "/notes/a%20b%2Fc%3Fd%23%C3%A9",
            ),
            (
                "/n/{id}?lang={lang}&all=1",
                json!({"id": "x"}),
                "/n/x?all=1",
            ),
            (
                "/n/{id}?lang={lang}",
                json!({"id": "x", "lang": "a&b=c"}),
                "/n/x?lang=a%26b%3Dc",
            ),
            (
                "/n",
                json!({"q": "x", "tag": ["a", "b"], "none": null}),
                "/n?q=x&tag=a&tag=b",
            ),
            ("/n?fixed=1", json!({"q": true}), "/n?fixed=1&q=true"),
        ] {
            assert_eq!(target(path, arguments).as_deref(), Ok(expected), "{path}");
        }
        let Value::Object(arguments) = json!({"id": "7", "text": "hi"}) else {
            return;
        };
        let posted = request(&tool(HttpMethod::Post, "/notes/{id}"), &arguments).unwrap();
        assert_eq!(posted.target, "/notes/7");
        assert_eq!(posted.body, Some(json!({"text": "hi"})));
    }

    /// R20.1: no argument leads to another resource than the operator named.
    #[test]
    fn arguments_do_not_leave_their_place() {
        for id in [
            json!(".."),
            json!("."),
            json!(""),
            json!(null),
            json!(["a"]),
            json!({}),
        ] {
            assert!(
                target("/notes/{id}/x", json!({ "id": id })).is_err(),
                "{id}"
            );
        }
        assert!(target("/notes/{id}", json!({})).is_err());
        assert!(target("/n/{a}{b}", json!({"a": ".", "b": "."})).is_err());
        let mut strict = tool(HttpMethod::Get, "/n");
        strict.schema =
            json!({"properties": {"q": {}}, "required": ["q"], "additionalProperties": false});
        for (arguments, fits) in [
            (json!({}), false),
            (json!({"q": 1}), true),
            (json!({"q": 1, "x": 1}), false),
        ] {
            let Value::Object(arguments) = arguments else {
                return;
            };
            assert_eq!(request(&strict, &arguments).is_ok(), fits);
        }
    }

    #[test]
    fn malformed_paths_are_refused() {
        for bad in [
            "notes",
            "/a b",
            "/a#b",
            "/{id",
            "/id}",
            "/{}",
            "/{a b}",
            "/a/../b",
            "/a/%2e%2E/b",
            "/{a{b}}",
            "/é",
        ] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
        let good = Template::parse("/{a}/b?c={d}").unwrap();
        assert_eq!(good.needed().into_iter().collect::<Vec<_>>(), ["a"]);
        assert_eq!(good.arguments().into_iter().collect::<Vec<_>>(), ["a", "d"]);
    }

    #[test]
    fn statuses_mean_what_the_operator_says() {
        let tool = tool(HttpMethod::Get, "/");
        for (status, expected) in [
            (200, StatusMeaning::Answer),
            (404, StatusMeaning::Answer),
            (400, StatusMeaning::Failed),
            (302, StatusMeaning::Failed),
            (401, StatusMeaning::Unavailable),
            (429, StatusMeaning::Unavailable),
            (503, StatusMeaning::Unavailable),
        ] {
            assert_eq!(meaning(&tool, status), expected, "{status}");
        }
    }

    proptest! {
        /// R20.1: whatever a model says, the path keeps its shape and holds only plain letters.
        #[test]
        fn no_text_breaks_out_of_its_segment(id in "\\PC{1,40}", q in "\\PC{0,40}") {
            if let Ok(target) = target("/notes/{id}?q={q}", json!({"id": id, "q": q})) {
                prop_assert!(target.is_ascii());
                prop_assert!(target.starts_with("/notes/"));
                prop_assert_eq!(target.matches('/').count(), 2);
                prop_assert_eq!(target.matches(['?', '&', '#']).count(), 1);
            } else {
                prop_assert!(id == "." || id == "..");
            }
        }
    }
}
