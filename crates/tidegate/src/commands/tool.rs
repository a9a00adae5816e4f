//! `tidegate tool`.

use std::{collections::BTreeMap, path::PathBuf};

use clap::{Args, Subcommand};
use serde::Deserialize;
use tidegate_model::{
    TenantId,
    api::{
        HttpTool, HttpTransport, PutToolServer, SideEffectLevel, StdioTransport,
        StreamableHttpTransport, ToolMount, ToolServerPhase, ToolServerView, ToolTransport,
        ToolTransportView,
    },
    ids::CatalogName,
};

use super::page::{self, PageFlags};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::{Failure, Outcome},
    files,
    output::table,
};

/// Tool servers: MCP over a child process or a URL, and HTTP APIs.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// Make or change a tool server; tools that no flag names are not mounted
    Set(Box<Set>),
    /// List tool servers with how they stand, without the values of their secrets
    List(PageFlags),
    /// Remove a tool server
    Delete {
        /// Its name
        name: CatalogName,
    },
}

/// How the tool server is reached, and which of its tools do what.
#[derive(Debug, Args)]
pub struct Set {
    /// Its name, the domain of its tools
    name: CatalogName,
    /// Its tool that only reads, by its name at the server; may be repeated
    #[arg(long = "read", value_name = "TOOL")]
    reads: Vec<String>,
    /// Its tool that changes no more when it is called twice; may be repeated
    #[arg(long = "idempotent", value_name = "TOOL")]
    idempotents: Vec<String>,
    /// Its tool that may change something with each call; may be repeated
    #[arg(long = "write", value_name = "TOOL")]
    writes: Vec<String>,
    /// Mount these tools, marked or not, and no others; NAME or BEGINNING*, may be repeated
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<String>,
    /// Do not mount these tools; NAME or BEGINNING*, may be repeated
    #[arg(long, value_name = "PATTERN")]
    deny: Vec<String>,
    /// The domain of its tools, if not its name
    #[arg(long, value_name = "DOMAIN")]
    prefix: Option<CatalogName>,
    /// A variable of its environment; NAME alone takes the value of this shell, so that secrets need no flag
    #[arg(long = "env", value_name = "NAME[=VALUE]", requires = "command")]
    environment: Vec<String>,
    /// A header of every request; @VARIABLE as value takes that of this shell, so that secrets need no flag
    #[arg(long = "header", value_name = "NAME=VALUE", conflicts_with = "command")]
    headers: Vec<String>,
    /// Only for this tenant; may be repeated
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<TenantId>,
    /// The longest a call may take, in milliseconds
    #[arg(long, value_name = "MS")]
    call_timeout_ms: Option<u64>,
    /// The longest a call may go without a sign of progress, in milliseconds
    #[arg(long, value_name = "MS")]
    idle_timeout_ms: Option<u64>,
    /// The URL of an MCP server (streamable HTTP)
    #[arg(long, value_name = "URL", group = "place")]
    mcp_url: Option<String>,
    /// A JSON file that describes the calls of an HTTP API: {"baseUrl": …, "tools": {"name": {…}}}
    #[arg(long, value_name = "FILE", group = "place")]
    http: Option<PathBuf>,
    /// The program of an MCP server and its arguments, after --
    #[arg(last = true, value_name = "COMMAND", group = "place", required_unless_present_any = ["mcp_url", "http"])]
    command: Vec<String>,
}

/// What to do about a file of `--http` that is none.
const DESCRIBED: &str = "see docs/how-to/add-a-tool.md for its form";

/// The file of `--http`; headers come by flag, since they are secret.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HttpFile {
    base_url: String,
    tools: BTreeMap<String, HttpTool>,
}

impl ToolCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Admin)?;
        match self {
            Self::Set(set) => {
                let name = set.name.clone();
                let view = client.put_tool_server(&name, &set.into_body()?).await?;
                output.show(&view, |view| list(std::slice::from_ref(view)));
            }
            Self::List(page) => {
                let answer = client.tool_servers(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
            }
            Self::Delete { name } => {
                client.delete_tool_server(&name).await?;
                let answer = serde_json::json!({ "name": name, "deleted": true });
                output.show(&answer, |_| format!("tool server {name} is deleted"));
            }
        }
        Ok(Exit::Success)
    }
}

impl Set {
    fn into_body(self) -> Outcome<PutToolServer> {
        let marks = [
            (self.reads, SideEffectLevel::Read),
            (self.idempotents, SideEffectLevel::Idempotent),
            (self.writes, SideEffectLevel::Write),
        ];
        let mut tools = BTreeMap::new();
        for (names, level) in marks {
            for tool in names {
                if let Some(other) = tools.insert(tool.clone(), level) {
                    return Err(
                        Failure::usage(format!("{tool} is named --{other} and --{level}"))
                            .remedy("name it once"),
                    );
                }
            }
        }
        let transport = if let Some(url) = self.mcp_url {
            ToolTransport::StreamableHttp(StreamableHttpTransport {
                url,
                headers: headers(self.headers)?,
            })
        } else if let Some(path) = self.http {
            let HttpFile { base_url, tools } =
                files::json("--http", &path, "description of an API", DESCRIBED)?;
            ToolTransport::Http(HttpTransport {
                base_url,
                headers: headers(self.headers)?,
                tools,
            })
        } else {
            let mut command = self.command.into_iter();
            ToolTransport::Stdio(StdioTransport {
                command: command.next().unwrap_or_default(),
                args: command.collect(),
                env: environment(self.environment)?,
            })
        };
        Ok(PutToolServer {
            transport,
            tools,
            mount: ToolMount {
                allow: (!self.allow.is_empty()).then_some(self.allow),
                deny: self.deny,
                prefix: self.prefix,
            },
            tenants: (!self.tenants.is_empty()).then_some(self.tenants),
            call_timeout_ms: self.call_timeout_ms,
            idle_timeout_ms: self.idle_timeout_ms,
        })
    }
}

fn environment(variables: Vec<String>) -> Outcome<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for variable in variables {
        let (name, value) = if let Some((name, value)) = variable.split_once('=') {
            (name.to_owned(), value.to_owned())
        } else {
            let value = of_this_shell(&variable, &format!("give --env {variable}=VALUE"))?;
            (variable, value)
        };
        env.insert(name, value);
    }
    Ok(env)
}

fn headers(given: Vec<String>) -> Outcome<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    for header in given {
        let Some((name, value)) = header.split_once('=') else {
            // What was given may be a secret: it is not repeated.
            return Err(Failure::usage("a --header has no '='")
                .remedy("give it as --header NAME=VALUE or --header NAME=@VARIABLE"));
        };
        let value = match value.strip_prefix('@') {
            Some(variable) => of_this_shell(variable, &format!("give --header {name}=VALUE"))?,
            None => value.to_owned(),
        };
        headers.insert(name.to_owned(), value);
    }
    Ok(headers)
}

fn of_this_shell(variable: &str, otherwise: &str) -> Outcome<String> {
    std::env::var(variable).map_err(|_| {
        Failure::usage(format!("the environment has no variable {variable}"))
            .remedy(format!("export it first, or {otherwise}"))
    })
}

fn list(servers: &[ToolServerView]) -> String {
    table(
        [
            "server",
            "reached by",
            "state",
            "tools",
            "tenants",
            "secrets",
        ],
        servers.iter().map(|server| {
            let tenants = server.tenants.as_ref().map_or_else(
                || "all".to_owned(),
                |tenants| {
                    let names: Vec<&str> = tenants.iter().map(TenantId::as_str).collect();
                    names.join(" ")
                },
            );
            let (place, secrets) = place(&server.transport);
            [
                server.name.to_string(),
                place,
                state(server),
                tools(server),
                tenants,
                secrets.join(" "),
            ]
        }),
    )
}

fn place(transport: &ToolTransportView) -> (String, &[String]) {
    match transport {
        ToolTransportView::Stdio { command, args, env } => {
            let words = [command].into_iter().chain(args).map(String::as_str);
            (words.collect::<Vec<_>>().join(" "), env)
        }
        ToolTransportView::StreamableHttp { url, headers } => (format!("MCP at {url}"), headers),
        ToolTransportView::Http {
            base_url, headers, ..
        } => (format!("HTTP at {base_url}"), headers),
    }
}

/// How it stands on the instances, the worst first; why is what `tidegate doctor` says.
fn state(server: &ToolServerView) -> String {
    let mut counts: BTreeMap<ToolServerPhase, usize> = BTreeMap::new();
    for state in &server.states {
        *counts.entry(state.phase).or_default() += 1;
    }
    let counts = counts.into_iter().rev();
    let counts: Vec<String> = counts
        .map(|(phase, count)| format!("{phase} on {count}"))
        .collect();
    if counts.is_empty() {
        "not seen yet".to_owned()
    } else {
        counts.join(", ")
    }
}

fn tools(server: &ToolServerView) -> String {
    let mut tools: BTreeMap<&str, SideEffectLevel> = BTreeMap::new();
    if let ToolTransportView::Http {
        tools: described, ..
    } = &server.transport
    {
        let described = described
            .keys()
            .map(|name| (name.as_str(), SideEffectLevel::Write));
        tools.extend(described);
    }
    tools.extend(
        server
            .tools
            .iter()
            .map(|(name, level)| (name.as_str(), *level)),
    );
    let tools = tools
        .into_iter()
        .map(|(name, level)| format!("{name}:{level}"));
    tools.collect::<Vec<_>>().join(" ")
}
