//! What one attempt may call, frozen when it began.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_llm::ToolSpec;
use tidegate_model::{
    Code, TenantId,
    api::{SideEffectLevel, ToolServerPhase},
    digest::Digest,
    ids::CatalogName,
};
use tidegate_policy::tool_names::{OFFERED_NAME_MAX, ToolName};

/// The tools of an attempt: what its models see, and the way back from each name.
#[derive(Debug, Clone)]
pub struct Offer {
    pub(super) tenant: TenantId,
    pub(super) tools: BTreeMap<String, Offered>,
    /// Servers of the tenant that could not be called when the offer was made.
    pub(super) missing: BTreeMap<CatalogName, ToolServerPhase>,
}

/// One tool of an offer.
#[derive(Debug, Clone)]
pub(super) struct Offered {
    pub(super) name: ToolName,
    pub(super) digest: Option<Digest>,
    pub(super) level: SideEffectLevel,
    /// What a model is shown; `None` where it must not be called, so that a call of it is told from a mere mistake.
    pub(super) spec: Option<ToolSpec>,
}

impl Offer {
    /// An offer without tools.
    pub fn none(tenant: TenantId) -> Self {
        Self {
            tenant,
            tools: BTreeMap::new(),
            missing: BTreeMap::new(),
        }
    }

    /// What a model is shown.
    pub fn specs(&self) -> Vec<ToolSpec> {
        let offered = self.tools.values();
        offered.filter_map(|tool| tool.spec.clone()).collect()
    }

    /// The map from names that models see to `domain/name`, as a run keeps it (R20.1).
    pub fn map(&self) -> Value {
        let offered = self.tools.iter().filter(|(_, tool)| tool.spec.is_some());
        offered
            .map(|(name, tool)| (name.clone(), json!(tool.name.canonical())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The body of an event that tells which servers are missing, so that nobody wonders why an agent did without them.
    /// Why they are is the operator's to read.
    pub fn missing(&self) -> Option<Value> {
        if self.missing.is_empty() {
            return None;
        }
        let servers = self.missing.iter();
        let servers: Vec<_> = servers
            .map(|(server, phase)| json!({ "server": server, "phase": phase }))
            .collect();
        Some(json!({
            "note": "tools.unavailable",
            "code": Code::ToolUnavailable,
            "servers": servers,
        }))
    }

    /// Whether nothing is offered.
    pub fn is_empty(&self) -> bool {
        self.tools.values().all(|tool| tool.spec.is_none())
    }

    /// `domain/name` of a name that a model used; the name itself, shortened, where there is no such tool.
    pub fn canonical(&self, offered_name: &str) -> String {
        if let Some(tool) = self.tools.get(offered_name) {
            return tool.name.canonical();
        }
        let plain = offered_name.chars().filter(|c| !c.is_control());
        plain.take(OFFERED_NAME_MAX).collect()
    }

    /// What a call of this name may do, as it was when the offer was made; the one place that decides whether a call
    /// needs an entry in the journal of effects (R4.5). `None` where nothing would be called.
    pub fn level(&self, offered_name: &str) -> Option<SideEffectLevel> {
        let tool = self.tools.get(offered_name)?;
        tool.spec.as_ref().map(|_| tool.level)
    }

    /// Whether a model was shown this name.
    pub fn knows(&self, offered_name: &str) -> bool {
        self.tools.contains_key(offered_name)
    }
}

/// How far a call came. What an effect journal may conclude from it (R4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// The server was never asked: nothing happened there.
    No,
    /// The server answered, with success or with an error of its own.
    Answered,
    /// It was asked and did not answer: whether anything happened is not known.
    Unknown,
}

/// What came of a tool call.
#[derive(Clone, PartialEq, Eq)]
pub struct ToolAnswer {
    /// What the model is told; data, never instructions.
    pub text: String,
    /// Why the call failed, if we know better than the tool.
    pub code: Option<Code>,
    /// Whether the call failed, by our word or the tool's.
    pub is_error: bool,
    /// How far it came.
    pub reached: Reached,
}

impl std::fmt::Debug for ToolAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ToolAnswer({} bytes, {:?}, {:?})",
            self.text.len(),
            self.code,
            self.reached
        )
    }
}

impl ToolAnswer {
    pub(super) fn refused(code: Code, text: impl Into<String>) -> Self {
        Self {
            text: format!("{code}: {}", text.into()),
            code: Some(code),
            is_error: true,
            reached: Reached::No,
        }
    }

    /// A call that the server was asked for, and that failed by our word.
    pub(super) fn failed(code: Code, text: impl Into<String>, reached: Reached) -> Self {
        Self {
            reached,
            ..Self::refused(code, text)
        }
    }
}
