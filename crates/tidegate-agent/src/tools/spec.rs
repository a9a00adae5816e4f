//! A tool server as the operator set it up, with its secrets opened.

use std::{collections::BTreeMap, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use tidegate_model::{
    TenantId,
    api::{HttpTool, SideEffectLevel, ToolMount},
    ids::CatalogName,
};
use tidegate_policy::tool_names::{ToolName, is_mounted};

use crate::limits;

/// Where tools are, and what the operator thinks of them.
#[derive(Debug, Clone)]
pub struct ToolServerSpec {
    /// Its name.
    pub name: CatalogName,
    /// How it is reached.
    pub transport: Transport,
    /// The operator's marks by the tool's name at the server; unmarked is `write`.
    pub tools: BTreeMap<String, SideEffectLevel>,
    /// Which tools are mounted, and as what.
    pub mount: ToolMount,
    /// Only these tenants; all where absent.
    pub tenants: Option<Vec<TenantId>>,
    /// The longest a call may take, whatever the server sends meanwhile.
    pub call_timeout: Duration,
    /// The longest a call may go without a sign of progress.
    pub idle_timeout: Duration,
}

/// How a tool server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// An MCP server that is started as a child process.
    Stdio(Program),
    /// An MCP server behind a URL.
    StreamableHttp(Endpoint),
    /// An HTTP API whose calls are described as tools.
    Http {
        /// What the paths of its tools are appended to.
        base: Endpoint,
        /// Its tools by name.
        tools: BTreeMap<String, HttpTool>,
    },
    /// It cannot be reached; why not.
    Unusable(String),
}

/// A program of the operator's.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment besides `PATH` and `HOME`.
    pub env: BTreeMap<String, SecretString>,
}

/// An address and what is sent there with each request.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Where it is.
    pub url: String,
    /// Headers of every request, to this host only.
    pub headers: BTreeMap<String, SecretString>,
}

impl ToolServerSpec {
    /// A server without tools that may be used, for all tenants.
    pub fn new(name: CatalogName, transport: Transport) -> Self {
        Self {
            name,
            transport,
            tools: BTreeMap::new(),
            mount: ToolMount::default(),
            tenants: None,
            call_timeout: limits::CALL_TIMEOUT,
            idle_timeout: limits::CALL_TIMEOUT,
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

    /// Whether the operator's rules mount a tool. Describing a call of an HTTP API is naming it.
    pub(super) fn mounts(&self, tool: &str) -> bool {
        let described = matches!(self.transport, Transport::Http { .. });
        is_mounted(
            &self.mount,
            tool,
            described || self.tools.contains_key(tool),
        )
    }

    /// The name under which a tool is mounted.
    pub(super) fn name_of(&self, tool: &str) -> ToolName {
        ToolName {
            domain: self.mount.prefix.as_ref().unwrap_or(&self.name).clone(),
            tool: tool.to_owned(),
            server: self.name.clone(),
        }
    }

    /// Everything it was given that must not come back from it.
    pub(super) fn secrets(&self) -> Vec<SecretString> {
        match &self.transport {
            Transport::Stdio(program) => program.env.values().cloned().collect(),
            Transport::StreamableHttp(endpoint) | Transport::Http { base: endpoint, .. } => {
                endpoint.headers.values().flat_map(words).collect()
            }
            Transport::Unusable(_) => Vec::new(),
        }
    }

    /// Whether what was started for the other serves this one too.
    pub(super) fn same_transport(&self, other: &Self) -> bool {
        self.name == other.name && self.transport.is_same(&other.transport)
    }
}

impl Transport {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stdio(one), Self::Stdio(two)) => {
                one.command == two.command && one.args == two.args && is_same(&one.env, &two.env)
            }
            (Self::StreamableHttp(one), Self::StreamableHttp(two)) => one.is_same(two),
            (
                Self::Http { base, tools },
                Self::Http {
                    base: other,
                    tools: others,
                },
            ) => base.is_same(other) && tools == others,
            (Self::Unusable(one), Self::Unusable(two)) => one == two,
            _ => false,
        }
    }
}

impl Endpoint {
    fn is_same(&self, other: &Self) -> bool {
        self.url == other.url && is_same(&self.headers, &other.headers)
    }
}

fn is_same(one: &BTreeMap<String, SecretString>, two: &BTreeMap<String, SecretString>) -> bool {
    let plain = |secrets: &BTreeMap<String, SecretString>| -> Vec<(String, String)> {
        let pairs = secrets.iter();
        pairs
            .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
            .collect()
    };
    plain(one) == plain(two)
}

/// A header's value and its words: of `Bearer …`, the token alone may come back.
fn words(value: &SecretString) -> Vec<SecretString> {
    let text = value.expose_secret();
    let words = text.split_whitespace().filter(|word| *word != text);
    [text]
        .into_iter()
        .chain(words)
        .map(SecretString::from)
        .collect()
}
