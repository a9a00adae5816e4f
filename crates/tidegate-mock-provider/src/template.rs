//! Placeholders in texts: `{{text}}`, `{{tool_result}}`, `{{tool_result_lines:N}}`, `{{key}}`, `{{var.NAME}}`.

use std::collections::BTreeMap;

/// What placeholders stand for in one request.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The last message of a user.
    pub(crate) text: String,
    /// What the last tool answered.
    pub(crate) tool_result: String,
    /// The key of the request.
    pub(crate) key: String,
}

enum Placeholder<'a> {
    Text,
    ToolResult,
    ToolResultLines(usize),
    Key,
    Var(&'a str),
}

fn placeholder(name: &str) -> Option<Placeholder<'_>> {
    match name {
        "text" => Some(Placeholder::Text),
        "tool_result" => Some(Placeholder::ToolResult),
        "key" => Some(Placeholder::Key),
        _ => match (
            name.strip_prefix("var."),
            name.strip_prefix("tool_result_lines:"),
        ) {
            (Some(var), _) => Some(Placeholder::Var(var)),
            (_, Some(lines)) => lines.parse().ok().map(Placeholder::ToolResultLines),
            _ => None,
        },
    }
}

/// Finds placeholders that mean nothing.
pub(crate) fn check(text: &str, vars: &BTreeMap<String, String>) -> Result<(), String> {
    let mut problem = None;
    expand(text, |name| {
        match placeholder(name) {
            Some(Placeholder::Var(var)) if !vars.contains_key(var) => {
                problem = Some(format!(
                    "{{{{{name}}}}} is not among the scenario's vars; add it under [vars]"
                ));
            }
            Some(_) => {}
            None => {
                problem = Some(format!(
                    "unknown placeholder {{{{{name}}}}}; there are text, tool_result, tool_result_lines:N, key, var.NAME"
                ));
            }
        }
        String::new()
    });
    problem.map_or(Ok(()), Err)
}

/// Fills in the placeholders.
pub(crate) fn render(text: &str, facts: &Facts, vars: &BTreeMap<String, String>) -> String {
    expand(text, |name| match placeholder(name) {
        Some(Placeholder::Text) => facts.text.clone(),
        Some(Placeholder::ToolResult) => facts.tool_result.clone(),
        Some(Placeholder::ToolResultLines(lines)) => facts
            .tool_result
            .lines()
            .take(lines)
            .collect::<Vec<_>>()
            .join("\n"),
        Some(Placeholder::Key) => facts.key.clone(),
        Some(Placeholder::Var(var)) => vars.get(var).cloned().unwrap_or_default(),
        None => String::new(),
    })
}

fn expand(text: &str, mut value: impl FnMut(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let Some(length) = rest[start..].find("}}") else {
            break;
        };
        out.push_str(&rest[..start]);
        out.push_str(&value(rest[start + 2..start + length].trim()));
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_and_everything_else_stays() {
        let facts = Facts {
            text: "hi {{key}}".to_owned(),
            tool_result: "1\n2\n3".to_owned(),
            key: "k".to_owned(),
        };
        let vars = BTreeMap::from([("repo".to_owned(), ".".to_owned())]);
        for (text, expected) in [
            ("{{text}}!", "hi {{key}}!"),
            ("{{ tool_result_lines:2 }}", "1\n2"),
            ("a {b} {{var.repo}} {{", "a {b} . {{"),
            (
                "{\"json\": {\"k\": \"{{key}}\"}}",
                "{\"json\": {\"k\": \"k\"}}",
            ),
        ] {
            assert_eq!(render(text, &facts, &vars), expected);
        }
    }
}
