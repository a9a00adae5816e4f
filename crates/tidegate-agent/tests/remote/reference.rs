//! A server of the reference implementation (Python), over a URL.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tidegate_model::{Code, api::SideEffectLevel};
use tokio::time::sleep;

use crate::{
    rig::{Names, PUBLIC, host, mcp_spec, network},
    support::{acme, offered, until},
};

const PROGRAM: &str = r#"
import asyncio, sys
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("reference")
count = 0

@server.tool()
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    global count
    if b < 0:
        raise ValueError("no negative numbers")
    count += 1
    return f"{a + b} by call {count}"

@server.tool()
async def slow(ctx: Context) -> str:
    """Takes its time and says so."""
    for step in range(10):
        await ctx.report_progress(step, 10)
        await asyncio.sleep(0.05)
    return "done"

server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response=sys.argv[2] == "json")
"#;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The Python that `make setup` gave the reference implementation.
fn python() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places = here
        .ancestors()
        .map(|dir| dir.join(".tidegate/venv/bin/python"));
    let found = places.find(|python| python.exists());
    assert!(
        found.is_some(),
        "there is no .tidegate/venv: run make setup"
    );
    found.unwrap()
}

fn start(port: u16, answers: &str) -> Killed {
    let mut command = Command::new(python());
    command.args(["-c", PROGRAM, &port.to_string(), answers]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Killed(command.spawn().unwrap())
}

/// R20.1: what the reference implementation serves is mounted and called, with answers as JSON and as streams, and
/// again after that server was started anew: its old session is none of the new one's.
#[tokio::test]
async fn a_server_of_the_reference_implementation_is_used() {
    for answers in ["json", "stream"] {
        let port = std::net::TcpListener::bind((PUBLIC, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let server = start(port, answers);
        let mut spec = mcp_spec(&format!("http://127.0.0.1:{port}/mcp"), &["add", "slow"]);
        spec.idle_timeout = Duration::from_secs(10);
        let host = host(network(Names::default()), vec![spec]);
        until("the server is up", || !host.view()[0].tools.is_empty()).await;
        let offer = host.offer(&acme(), SideEffectLevel::Read).await;
        assert_eq!(offered(&offer), ["notes__add", "notes__slow"]);
        let answer = host.call(&offer, "notes__add", r#"{"a": 2, "b": 3}"#).await;
        assert_eq!((answer.code, answer.text.as_str()), (None, "5 by call 1"));
        let answer = host
            .call(&offer, "notes__add", r#"{"a": 2, "b": -3}"#)
            .await;
        assert!(answer.is_error && answer.code.is_none(), "{}", answer.text);
        // What its own schema refuses does not reach it.
        let answer = host.call(&offer, "notes__add", r#"{"a": "x"}"#).await;
        assert_eq!(answer.code, Some(Code::InvalidArgument), "{}", answer.text);
        let answer = host.call(&offer, "notes__slow", "{}").await;
        assert_eq!((answer.code, answer.text.as_str()), (None, "done"));
        drop(server);
        let _again = start(port, answers);
        let mut tries = 0;
        let answer = loop {
            let answer = host.call(&offer, "notes__add", r#"{"a": 2, "b": 3}"#).await;
            if answer.code.is_none() {
                break answer;
            }
            tries += 1;
            assert!(tries < 400, "{}", answer.text);
            sleep(Duration::from_millis(50)).await;
        };
        assert!(answer.text.starts_with("5 by call "), "{}", answer.text);
        host.shutdown().await;
    }
}
