//! Tool servers, as an administrator keeps them and as instances see them (R20.1).

use std::{collections::BTreeMap, fmt};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SecretState;
use crate::{InstanceId, TenantId, ids::CatalogName, text_enum};

text_enum! {
    /// What a tool may do, from the harmless to the rest (R20.1).
    pub enum SideEffectLevel: "side effect level" {
        /// Only reads.
        Read = "read",
        /// Changes something, but twice the same call changes no more than once.
        Idempotent = "idempotent",
        /// May change something each time it is called; every tool that is not marked.
        Write = "write",
    }
}

/// `PUT /v1/admin/tool-servers/{name}`: where tools are, and what the operator thinks of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutToolServer {
    /// How it is reached: one of `stdio`, `streamableHttp`, `http`.
    pub transport: ToolTransport,
    /// The operator's mark of each tool by its name at the server; unmarked is `write`.
    #[serde(default)]
    pub tools: BTreeMap<String, SideEffectLevel>,
    /// Which of its tools are mounted, and as what.
    #[serde(default)]
    pub mount: ToolMount,
    /// Only these tenants; all unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<TenantId>>,
    /// The longest a call may take, whatever the server sends meanwhile, in milliseconds; 60,000 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_timeout_ms: Option<u64>,
    /// The longest a call may go without a sign of progress, in milliseconds; as long as the call unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
}

/// How a tool server is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", try_from = "OneTransport")]
pub enum ToolTransport {
    /// An MCP server that each instance starts as a child process.
    Stdio(StdioTransport),
    /// An MCP server behind a URL.
    StreamableHttp(StreamableHttpTransport),
    /// Any HTTP API, described tool by tool.
    Http(HttpTransport),
}

/// What is read of a [`ToolTransport`]: of an enum the reader would call two of its fields, or none, broken JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OneTransport {
    stdio: Option<StdioTransport>,
    streamable_http: Option<StreamableHttpTransport>,
    http: Option<HttpTransport>,
}

impl TryFrom<OneTransport> for ToolTransport {
    type Error = &'static str;

    fn try_from(given: OneTransport) -> Result<Self, Self::Error> {
        match (given.stdio, given.streamable_http, given.http) {
            (Some(stdio), None, None) => Ok(Self::Stdio(stdio)),
            (None, Some(http), None) => Ok(Self::StreamableHttp(http)),
            (None, None, Some(http)) => Ok(Self::Http(http)),
            _ => Err("give exactly one of stdio, streamableHttp, http"),
        }
    }
}

/// An MCP server that is started as a child process.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StdioTransport {
    /// The program.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its environment besides `PATH` and `HOME`; values are sealed at rest and never shown.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl fmt::Debug for StdioTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioTransport")
            .field("command", &self.command)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// An MCP server behind a URL (streamable HTTP).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StreamableHttpTransport {
    /// Where it answers, for example `https://tools.example/mcp`.
    pub url: String,
    /// Headers of every request; values are sealed at rest, never shown, and sent to no other host.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for StreamableHttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamableHttpTransport")
            .field("url", &self.url)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// An HTTP API whose calls are described as tools.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpTransport {
    /// What the paths of its tools are appended to, for example `https://api.example/v1`.
    pub base_url: String,
    /// Headers of every request; values are sealed at rest, never shown, and sent to no other host.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Its tools by name.
    pub tools: BTreeMap<String, HttpTool>,
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport")
            .field("base_url", &self.base_url)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("tools", &self.tools.keys().collect::<Vec<_>>())
            .finish()
    }
}

text_enum! {
    /// The method of an HTTP tool.
    pub enum HttpMethod: "HTTP method" {
        /// Arguments that the path does not name go into the query.
        Get = "GET",
        /// Arguments that the path does not name are the JSON body.
        Post = "POST",
        /// Arguments that the path does not name are the JSON body.
        Put = "PUT",
        /// Arguments that the path does not name are the JSON body.
        Patch = "PATCH",
        /// Arguments that the path does not name go into the query.
        Delete = "DELETE",
    }
}

text_enum! {
    /// What an HTTP status means for a call.
    pub enum StatusMeaning: "meaning of a status" {
        /// The call succeeded; its body is the answer.
        Answer = "answer",
        /// The call was understood and failed; its body tells the model why.
        Failed = "failed",
        /// The tool cannot be used now; the body is not shown.
        Unavailable = "unavailable",
    }
}

/// One call of an HTTP API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpTool {
    /// What models are told about it.
    pub description: String,
    /// How it is called.
    pub method: HttpMethod,
    /// Path and query behind the base URL; `{name}` is replaced by the argument of that name: `/notes/{id}?lang={lang}`.
    pub path: String,
    /// JSON schema of its arguments, an object.
    #[serde(default = "no_arguments")]
    pub schema: Value,
    /// What a status means where that is not the usual: 2xx is an answer, 401, 403, 407, 408, 429 and 5xx mean
    /// unavailable, anything else failed.
    #[serde(default)]
    pub statuses: BTreeMap<String, StatusMeaning>,
    /// The largest answer that is read, in bytes; 1 MiB unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u32>,
}

fn no_arguments() -> Value {
    serde_json::json!({ "type": "object" })
}

/// Which tools of a server are mounted, and under which domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolMount {
    /// Names, or beginnings of names with `*` behind them; the marked tools unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Names, or beginnings of names with `*` behind them, that are not mounted even if allowed.
    #[serde(default)]
    pub deny: Vec<String>,
    /// The domain of its tools, `prefix/tool`; the server's name unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<CatalogName>,
}

/// A tool server without the values of its secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolServerView {
    /// Its name.
    pub name: CatalogName,
    /// How it is reached.
    pub transport: ToolTransportView,
    /// Whether the values of its environment or headers can be opened.
    pub secret: SecretState,
    /// The operator's marks.
    pub tools: BTreeMap<String, SideEffectLevel>,
    /// Which of its tools are mounted, and as what.
    pub mount: ToolMount,
    /// Only these tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<TenantId>>,
    /// The longest a call may take.
    pub call_timeout_ms: u64,
    /// The longest a call may go without a sign of progress.
    pub idle_timeout_ms: u64,
    /// How it stands on each instance that serves it; nothing in the answer to a change, which instances follow later.
    pub states: Vec<ToolServerState>,
}

/// How a tool server is reached, without secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum ToolTransportView {
    /// An MCP server that each instance starts as a child process.
    #[serde(rename_all = "camelCase")]
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// The names of its environment.
        env: Vec<String>,
    },
    /// An MCP server behind a URL.
    #[serde(rename_all = "camelCase")]
    StreamableHttp {
        /// Where it answers.
        url: String,
        /// The names of its headers.
        headers: Vec<String>,
    },
    /// Any HTTP API, described tool by tool.
    #[serde(rename_all = "camelCase")]
    Http {
        /// What the paths of its tools are appended to.
        base_url: String,
        /// The names of its headers.
        headers: Vec<String>,
        /// Its tools by name.
        tools: BTreeMap<String, HttpTool>,
    },
}

text_enum! {
    /// Where a tool server is in its life on an instance.
    pub enum ToolServerPhase: "phase of a tool server" {
        /// It waits for one of the instance's processes.
        Waiting = "waiting",
        /// It is being started or connected to.
        Starting = "starting",
        /// It can be called.
        Ready = "ready",
        /// It ended, could not be started, or does not answer; it is tried again.
        Down = "down",
    }
}

/// How a tool server stands on one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolServerState {
    /// The instance.
    pub instance_id: InstanceId,
    /// Where it is in its life there.
    pub phase: ToolServerPhase,
    /// Why it is down, without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Since when.
    pub since: DateTime<Utc>,
    /// Its tools as it listed them, those that are not mounted left out.
    pub tools: Vec<ToolState>,
}

/// A tool as it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolState {
    /// Its name at the server.
    pub name: String,
    /// The name models see; absent where it is not offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_as: Option<String>,
    /// What it may do: the operator's mark, or worse where its server says so.
    pub level: SideEffectLevel,
    /// Why it is not offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
