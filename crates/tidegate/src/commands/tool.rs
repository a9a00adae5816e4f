//! `tidegate tool`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use tidegate_model::{
    TenantId,
    api::{PutToolServer, SideEffectLevel, ToolServerView},
    ids::CatalogName,
};

use super::page::{self, PageFlags};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::{Failure, Outcome},
    output::table,
};

/// Tool servers: MCP over the standard streams of a child process.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// Make or change a tool server; tools not named with --read are not offered to a model
    Set(Set),
    /// List tool servers without the values of their environment
    List(PageFlags),
    /// Remove a tool server
    Delete {
        /// Its name
        name: CatalogName,
    },
}

/// How the tool server is started and which of its tools only read.
#[derive(Debug, Args)]
pub struct Set {
    /// Its name, the domain of its tools
    name: CatalogName,
    /// Its tool that only reads, by its name at the server; may be repeated
    #[arg(long = "read", value_name = "TOOL")]
    reads: Vec<String>,
    /// A variable of its environment; NAME alone takes the value of this shell, so that secrets need no flag
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    environment: Vec<String>,
    /// Only for this tenant; may be repeated
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<TenantId>,
    /// The longest a call may take, in milliseconds
    #[arg(long, value_name = "MS")]
    call_timeout_ms: Option<u64>,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
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
        let mut env = BTreeMap::new();
        for variable in self.environment {
            let (name, value) = if let Some((name, value)) = variable.split_once('=') {
                (name.to_owned(), value.to_owned())
            } else {
                let value = std::env::var(&variable).map_err(|_| {
                    Failure::usage(format!("the environment has no variable {variable}"))
                        .remedy(format!("export it first, or give --env {variable}=VALUE"))
                })?;
                (variable, value)
            };
            env.insert(name, value);
        }
        let mut command = self.command.into_iter();
        Ok(PutToolServer {
            command: command.next().unwrap_or_default(),
            args: command.collect(),
            env,
            tools: self
                .reads
                .into_iter()
                .map(|tool| (tool, SideEffectLevel::Read))
                .collect(),
            tenants: (!self.tenants.is_empty()).then_some(self.tenants),
            call_timeout_ms: self.call_timeout_ms,
        })
    }
}

fn list(servers: &[ToolServerView]) -> String {
    table(
        ["server", "command", "read tools", "tenants", "environment"],
        servers.iter().map(|server| {
            let reads: Vec<&str> = server
                .tools
                .iter()
                .filter(|(_, level)| **level == SideEffectLevel::Read)
                .map(|(name, _)| name.as_str())
                .collect();
            let tenants = server.tenants.as_ref().map_or_else(
                || "all".to_owned(),
                |tenants| {
                    let names: Vec<&str> = tenants.iter().map(TenantId::as_str).collect();
                    names.join(" ")
                },
            );
            [
                server.name.to_string(),
                [&server.command]
                    .into_iter()
                    .chain(&server.args)
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(" "),
                reads.join(" "),
                tenants,
                server.env.join(" "),
            ]
        }),
    )
}
