//! A tool server as the operator set it up, with its environment opened.

use std::{collections::BTreeMap, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use tidegate_model::{TenantId, api::SideEffectLevel, ids::CatalogName};

use crate::limits;

/// An MCP server that is started as a child process.
#[derive(Debug, Clone)]
pub struct ToolServerSpec {
    /// Its name, the domain of its tools.
    pub name: CatalogName,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment besides `PATH` and `HOME`.
    pub env: BTreeMap<String, SecretString>,
    /// The operator's marks by the tool's name at the server; unmarked is `write`.
    pub tools: BTreeMap<String, SideEffectLevel>,
    /// Only these tenants; all where absent.
    pub tenants: Option<Vec<TenantId>>,
    /// The longest a call may take.
    pub call_timeout: Duration,
}

impl ToolServerSpec {
    /// A server without tools that may be used, for all tenants.
    pub fn new(name: CatalogName, command: impl Into<String>) -> Self {
        Self {
            name,
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            tools: BTreeMap::new(),
            tenants: None,
            call_timeout: limits::CALL_TIMEOUT,
        }
    }

    /// Whether the tenant may use it.
    pub fn serves(&self, tenant: &TenantId) -> bool {
        self.tenants
            .as_ref()
            .is_none_or(|tenants| tenants.contains(tenant))
    }

    /// The operator's mark of a tool.
    pub fn level(&self, tool: &str) -> SideEffectLevel {
        let mark = self.tools.get(tool).copied();
        mark.unwrap_or(SideEffectLevel::Write)
    }

    /// Whether a process that was started for the other serves this one too.
    pub(super) fn same_process(&self, other: &Self) -> bool {
        let env = |spec: &Self| -> Vec<(String, String)> {
            let pairs = spec.env.iter();
            pairs
                .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
                .collect()
        };
        self.name == other.name
            && self.command == other.command
            && self.args == other.args
            && env(self) == env(other)
    }
}
