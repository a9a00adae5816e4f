//! The tools of a server, judged by the operator's marks and the server's own hints.

use std::{collections::BTreeMap, sync::Arc};

use jsonschema::Validator;
use rmcp::model::{Tool as McpTool, ToolAnnotations};
use serde_json::{Value, json};
use tidegate_model::{
    api::{HttpTool, SideEffectLevel},
    digest::{Digest, canonical_digest},
};

use super::spec::ToolServerSpec;
use crate::limits;

/// Why a tool is not offered whose arguments cannot be checked.
const NO_SCHEMA: &str = "the schema of its arguments is not a JSON Schema that stands for itself";
/// A model is told this many faults at once.
const FAULTS_MAX: usize = 5;
/// And this much of each: it may repeat what the model wrote.
const FAULT_MAX_CHARS: usize = 300;

/// A tool as its server lists it, judged by the operator's marks.
#[derive(Debug, Clone)]
pub(super) struct MountedTool {
    pub(super) description: String,
    pub(super) schema: Value,
    /// What arguments are held against before they go out; `None` where the schema is none.
    arguments: Option<Arc<Validator>>,
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
    let mounted = listed.into_iter().filter(|tool| spec.mounts(&tool.name));
    for tool in mounted.take(limits::TOOLS_MAX) {
        let name = tool.name.to_string();
        if let Some((_, twice)) = tools.get_mut(&name) {
            *twice = true;
            continue;
        }
        let hints = tool.annotations.clone().unwrap_or_default();
        let schema = Value::Object((*tool.input_schema).clone());
        let description = tool.description.as_deref().unwrap_or_default();
        let level = level(spec.level(&name), &hints);
        let refused = refusal(level, &hints, &schema);
        let mounted = MountedTool::new(description, schema, level, refused);
        tools.insert(name, (mounted, false));
    }
    tools
}

/// The described calls of an HTTP API. Nobody but the operator says anything about them.
pub(super) fn described(spec: &ToolServerSpec, described: &BTreeMap<String, HttpTool>) -> Tools {
    let mounted = described.iter().filter(|(name, _)| spec.mounts(name));
    mounted
        .map(|(name, tool)| {
            let level = spec.level(name);
            let tool = MountedTool::new(&tool.description, tool.schema.clone(), level, None);
            (name.clone(), (tool, false))
        })
        .collect()
}

impl MountedTool {
    fn new(
        description: &str,
        schema: Value,
        level: SideEffectLevel,
        refused: Option<&'static str>,
    ) -> Self {
        let description: String = description
            .chars()
            .filter(|c| *c != '\0')
            .take(limits::DESCRIPTION_MAX_CHARS)
            .collect();
        let digest = canonical_digest(&json!([description, schema])).ok();
        // Nothing is fetched for it: what the schema refers to must stand in it.
        let arguments = match refused {
            Some(_) => None,
            None => jsonschema::validator_for(&schema).ok().map(Arc::new),
        };
        let unchecked = arguments.is_none().then_some(NO_SCHEMA);
        Self {
            description,
            schema,
            arguments,
            digest,
            level,
            refused: refused.or(unchecked),
        }
    }

    /// What is wrong with arguments by the tool's own schema, for the model that wrote them.
    pub(super) fn fault(&self, arguments: &Value) -> Option<String> {
        let Some(schema) = &self.arguments else {
            return Some(NO_SCHEMA.to_owned());
        };
        let faults: Vec<String> = schema
            .iter_errors(arguments)
            .take(FAULTS_MAX)
            .map(|fault| {
                let text: String = fault.to_string().chars().take(FAULT_MAX_CHARS).collect();
                match fault.instance_path().as_str() {
                    "" => text,
                    path => format!("{path}: {text}"),
                }
            })
            .collect();
        (!faults.is_empty()).then(|| faults.join("; "))
    }
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
    use crate::tools::spec::{Program, Transport};

    /// Bad input: arguments are held against the tool's schema, references within it included; a tool whose schema is
    /// none is not offered.
    #[test]
    fn arguments_are_held_against_the_schema() {
        let tool = |schema: Value| MountedTool::new("", schema, SideEffectLevel::Read, None);
        let item = tool(json!({
            "type": "object",
            "properties": {"id": {"type": "integer"}, "tag": {"$ref": "#/$defs/tag"}},
            "required": ["id"],
            "additionalProperties": false,
            "$defs": {"tag": {"type": "string", "pattern": "^[a-z]+$"}},
        }));
        assert_eq!(item.refused, None);
        assert_eq!(item.fault(&json!({"id": 7, "tag": "red"})), None);
        for (bad, word) in [
            (json!({"id": "../../admin"}), "/id"),
            (json!({"id": 7, "tag": "A B"}), "/tag"),
            (json!({"tag": "red"}), "id"),
            (json!({"id": 7, "more": 1}), "more"),
        ] {
            let fault = item.fault(&bad).expect("a fault");
            assert!(fault.contains(word), "{bad}: {fault}");
        }
        assert_eq!(tool(json!({})).fault(&json!({"any": 1})), None);
        for broken in [
            json!({"type": "nonsense"}),
            json!({"$ref": "http://192.0.2.1/schema"}),
        ] {
            let tool = tool(broken);
            assert!(tool.refused.is_some() && tool.fault(&json!({})).is_some());
        }
    }

    /// O-21: allowed are the operator's marks minus what the server itself calls writing, and nothing is added.
    #[test]
    fn hints_only_take_away() {
        let transport = Transport::Stdio(Program::default());
        let mut spec = ToolServerSpec::new("files".parse().unwrap(), transport);
        spec.mount.allow = Some(vec!["*".to_owned()]);
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

    /// O-21: a tool that its server does not call idempotent is not repeated on the operator's word alone.
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
