//! The tools of a server, judged by the operator's marks and the server's own hints.

use std::collections::BTreeMap;

use rmcp::model::{Tool as McpTool, ToolAnnotations};
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
    /// What it may do, by the operator's mark and less than that by its server's own hints.
    pub level: SideEffectLevel,
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
    /// What it may do: the operator's mark, or worse where the server itself says so.
    pub(super) level: SideEffectLevel,
    /// Why it must not be offered at all.
    pub(super) refused: Option<&'static str>,
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
        let level = level(spec.level(&name), &hints);
        let refused = refusal(level, &hints, &schema);
        let digest = canonical_digest(&json!([description, schema])).ok();
        let mounted = MountedTool {
            description,
            schema,
            digest,
            level,
            refused,
        };
        tools.insert(name, (mounted, false));
    }
    tools
}

/// The operator's mark, made worse where the server itself says that a second call is another change.
fn level(marked: SideEffectLevel, hints: &ToolAnnotations) -> SideEffectLevel {
    let repeats = hints.idempotent_hint == Some(false) && hints.read_only_hint != Some(true);
    match marked {
        SideEffectLevel::Idempotent if repeats => SideEffectLevel::Write,
        marked => marked,
    }
}

/// A mark and a server that contradict each other are for the operator to settle; nobody is believed until then.
fn refusal(
    level: SideEffectLevel,
    hints: &ToolAnnotations,
    schema: &Value,
) -> Option<&'static str> {
    let destroys = hints.read_only_hint.is_none() && hints.destructive_hint == Some(true);
    if level == SideEffectLevel::Read && hints.read_only_hint == Some(false) {
        Some("it is marked read, but its server says that it writes")
    } else if level == SideEffectLevel::Read && destroys {
        Some("it is marked read, but its server says that it destroys")
    } else if schema.to_string().len() > limits::SCHEMA_MAX_BYTES {
        Some("the schema of its arguments is too large")
    } else {
        None
    }
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
        let reads = tools
            .iter()
            .filter(|(_, (tool, _))| tool.refused.is_none() && tool.level == SideEffectLevel::Read);
        assert_eq!(
            reads.map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["r1", "r3"]
        );
    }

    /// O-21, R4.5: a tool that its server does not call idempotent is not repeated on the operator's word alone.
    #[test]
    fn a_server_can_make_an_idempotent_tool_worse_and_no_tool_better() {
        use SideEffectLevel::{Idempotent, Read, Write};
        let hints = |value| serde_json::from_value::<ToolAnnotations>(value).unwrap();
        for (marked, said, held) in [
            (Idempotent, json!({}), Idempotent),
            (Idempotent, json!({"idempotentHint": false}), Write),
            (
                Idempotent,
                json!({"idempotentHint": false, "readOnlyHint": true}),
                Idempotent,
            ),
            (
                Write,
                json!({"idempotentHint": true, "readOnlyHint": true}),
                Write,
            ),
            (Read, json!({"idempotentHint": false}), Read),
        ] {
            assert_eq!(level(marked, &hints(said.clone())), held, "{marked} {said}");
        }
    }
}
