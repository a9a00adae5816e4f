//! Tool servers that work on the files of the checkout one stands in, as `make setup` installs them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use tidegate_model::api::{
    PutToolServer, SideEffectLevel, StdioTransport, ToolMount, ToolTransport,
};

/// Name in the catalogue, program, tools that only read.
const SERVERS: [(&str, &str, &[&str]); 2] = [
    (
        "git",
        "mcp-server-git",
        &[
            "git_status",
            "git_log",
            "git_show",
            "git_branch",
            "git_diff",
            "git_diff_staged",
            "git_diff_unstaged",
        ],
    ),
    (
        "time",
        "mcp-server-time",
        &["get_current_time", "convert_time"],
    ),
];
/// Where `make setup` puts programs, below the checkout.
const VENV: &str = ".tidegate/venv/bin";

/// The checkout that a directory is in: the nearest one above with a `.git`.
pub fn find(directory: &Path) -> Option<PathBuf> {
    directory
        .ancestors()
        .find(|dir| dir.join(".git").exists())
        .map(Path::to_owned)
}

/// Tool servers for a checkout: those of ours whose program is installed.
pub fn tool_servers(checkout: &Path) -> Vec<(&'static str, PutToolServer)> {
    SERVERS
        .iter()
        .filter_map(|(name, program, reads)| {
            let command = installed(checkout, program)?;
            let args = match *name {
                "git" => vec!["--repository".to_owned(), checkout.display().to_string()],
                _ => vec!["--local-timezone".to_owned(), "UTC".to_owned()],
            };
            let server = PutToolServer {
                transport: ToolTransport::Stdio(StdioTransport {
                    command: command.display().to_string(),
                    args,
                    env: BTreeMap::new(),
                }),
                mount: ToolMount::default(),
                tools: reads
                    .iter()
                    .map(|tool| ((*tool).to_owned(), SideEffectLevel::Read))
                    .collect(),
                tenants: None,
                call_timeout_ms: None,
                idle_timeout_ms: None,
            };
            Some((*name, server))
        })
        .collect()
}

fn installed(checkout: &Path, program: &str) -> Option<PathBuf> {
    let own = checkout.join(VENV).join(program);
    if own.is_file() {
        return Some(own);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}
