//! The tools of a server, judged by the operator's marks and the server's own hints.

use std::collections::BTreeMap;

use rmcp::model::Tool as McpTool;
use serde_json::{Value, json};
use tidegate_model::{
    api::SideEffectLevel,
    digest::{Digest, canonical_digest},
};

use super::spec::ToolServerSpec;
use crate::limits;

/// A tool as it is shown to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolStatus {
    /// Its name at the server.
    pub name: String,
    /// The name models see; absent where it is not offered.
    pub offered_as: Option<String>,
    /// Why it is not offered.
    pub refused: Option<String>,
}

/// A tool as its server lists it, judged by the operator's marks.
#[derive(Debug, Clone)]
pub(super) struct MountedTool {
    pub(super) description: String,
    pub(super) schema: Value,
    /// Of description and schema: what a model was told about it.
    pub(super) digest: Option<Digest>,
    /// `Err` says why it must not be offered.
    pub(super) readable: Result<(), String>,
}

/// The tools of a server by name; the flag says that the name was listed twice.
pub(super) type Tools = BTreeMap<String, (MountedTool, bool)>;

/// Judges what a server lists. Its own hints can only take away (O-21).
pub(super) fn judge(spec: &ToolServerSpec, listed: Vec<McpTool>) -> Tools {
    let mut tools = Tools::new();
    for tool in listed.into_iter().take(limits::TOOLS_MAX) {
        let name = tool.name.to_string();
        if let Some((_, twice)) = tools.get_mut(&name) {
            *twice = true;
            continue;
        }
        let hints = tool.annotations.clone().unwrap_or_default();
        let schema = Value::Object((*tool.input_schema).clone());
        let description = tool.description.as_deref().unwrap_or_default();
        let description: String = description
            .chars()
            .filter(|c| *c != '\0')
            .take(limits::DESCRIPTION_MAX_CHARS)
            .collect();
        let readable = if spec.level(&name) != SideEffectLevel::Read {
            Err("the operator has not marked it read".to_owned())
        } else if hints.read_only_hint == Some(false) {
            Err("its server says that it writes".to_owned())
        } else if hints.read_only_hint.is_none() && hints.destructive_hint == Some(true) {
            Err("its server says that it destroys".to_owned())
        } else if schema.to_string().len() > limits::SCHEMA_MAX_BYTES {
            Err("the schema of its arguments is too large".to_owned())
        } else {
            Ok(())
        };
        let digest = canonical_digest(&json!([description, schema])).ok();
        let mounted = MountedTool {
            description,
            schema,
            digest,
            readable,
        };
        tools.insert(name, (mounted, false));
    }
    tools
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O-21: allowed are the operator's marks minus what the server itself calls writing, and nothing is added.
    #[test]
    fn hints_only_take_away() {
        let mut spec = ToolServerSpec::new("files".parse().unwrap(), "x");
        for name in ["r1", "r2", "r3", "r4"] {
            spec.tools.insert(name.to_owned(), SideEffectLevel::Read);
        }
        let tool = |name: &str, hints: Value| -> McpTool {
            let tool =
                json!({"name": name, "inputSchema": {"type": "object"}, "annotations": hints});
            serde_json::from_value(tool).unwrap()
        };
        let tools = judge(
            &spec,
            vec![
                tool("r1", json!({"readOnlyHint": true})),
                tool("r2", json!({"readOnlyHint": false})),
                tool("r3", json!({})),
                tool("r4", json!({"destructiveHint": true})),
                tool("w1", json!({"readOnlyHint": true})),
                tool("w2", json!({})),
            ],
        );
        let allowed = tools.iter().filter(|(_, (tool, _))| tool.readable.is_ok());
        assert_eq!(
            allowed.map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["r1", "r3"]
        );
    }
}
