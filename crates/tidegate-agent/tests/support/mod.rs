//! What the tests of this crate stand on: the MCP fixture as a real child process.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use tidegate_agent::{
    ToolHost, ToolServerSpec,
    tools::{Offer, Program, ServerState, ToolLimits, Transport},
};
use tidegate_model::{TenantId, api::SideEffectLevel, ids::CatalogName};
use tokio::time::{Instant, sleep};

/// Nothing that should happen takes longer than this.
pub const SOON: Duration = Duration::from_secs(20);

pub fn acme() -> TenantId {
    "acme".parse().unwrap()
}

pub fn name(text: &str) -> CatalogName {
    text.parse().unwrap()
}

/// The fixture's program. `cargo test -p tidegate-agent` builds it; a run of one test binary alone does not.
pub fn fixture() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let test = env::current_exe().unwrap();
        let path = test
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("examples/mcp_fixture");
        if !path.exists() {
            let built = Command::new(env!("CARGO"))
                .args([
                    "build",
                    "-q",
                    "-p",
                    "tidegate-agent",
                    "--example",
                    "mcp_fixture",
                ])
                .status();
            assert!(
                built.unwrap().success(),
                "build it: cargo build -p tidegate-agent --example mcp_fixture"
            );
        }
        assert!(path.exists(), "{} is missing", path.display());
        path
    })
}

/// The fixture as a server named `notes` whose marks are those of the tests.
pub fn spec(mode: &str) -> ToolServerSpec {
    let program = Program {
        command: fixture().to_str().unwrap().to_owned(),
        args: vec![mode.to_owned()],
        ..Program::default()
    };
    let mut spec = ToolServerSpec::new(name("notes"), Transport::Stdio(program));
    spec.mount.allow = Some(vec!["*".to_owned()]);
    for tool in [
        "read_note",
        "honest_write",
        "big",
        "env",
        "slow",
        "progress",
        "fail",
        "boom",
        "crash",
        "child",
        "change",
    ] {
        spec.tools.insert(tool.to_owned(), SideEffectLevel::Read);
    }
    spec.tools
        .insert("write_note".to_owned(), SideEffectLevel::Write);
    spec
}

/// The program of a server over stdio.
pub fn program(spec: &mut ToolServerSpec) -> &mut Program {
    let program = match &mut spec.transport {
        Transport::Stdio(program) => Some(program),
        _ => None,
    };
    program.unwrap()
}

/// Limits under which faults show quickly.
pub fn quick() -> ToolLimits {
    ToolLimits {
        offer_wait: SOON,
        mount_timeout: Duration::from_millis(800),
        restart_base: Duration::from_millis(100),
        ..ToolLimits::default()
    }
}

pub fn host(specs: Vec<ToolServerSpec>) -> ToolHost {
    let host = ToolHost::new(ToolLimits {
        offer_wait: SOON,
        mount_timeout: SOON,
        ..ToolLimits::default()
    });
    host.configure(specs);
    host
}

pub fn offered(offer: &Offer) -> Vec<String> {
    offer.specs().into_iter().map(|spec| spec.name).collect()
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

pub async fn until_ready(host: &ToolHost) {
    until("the servers are ready", || {
        host.view()
            .iter()
            .all(|server| server.state == ServerState::Ready)
    })
    .await;
}

/// Whether a process is there, and no zombie that waits to be reaped.
pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Processes of this test binary, zombies included.
pub fn children() -> usize {
    let me = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| {
            let parent = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.split(' ').nth(1));
            parent == Some(&me)
        })
        .count()
}
