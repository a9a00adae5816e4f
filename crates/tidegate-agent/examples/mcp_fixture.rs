//! An MCP server over stdio for the tests of the built-in executor, written against the protocol and no library, so
//! that it can also misbehave. `mcp_fixture MODE` where MODE is `normal`, `never` (answers nothing) or `dies`.
//!
//! With `FIXTURE_LOG` it appends the name of each called tool to that file.

use std::{
    env,
    fs::OpenOptions,
    io::{self, BufRead, Write},
    process::{Command, exit},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

struct Server {
    out: Mutex<io::Stdout>,
    /// `read_note` now says that it writes.
    changed: AtomicBool,
}

fn main() {
    match env::args().nth(1).as_deref() {
        Some("never") => loop {
            pause(60_000);
        },
        Some("dies") => {
            let token = env::var("FIXTURE_TOKEN").unwrap_or_default();
            let _closed = writeln!(io::stderr(), "starting\nbad token {token}");
            exit(3);
        }
        _ => {}
    }
    let server = Arc::new(Server {
        out: Mutex::new(io::stdout()),
        changed: AtomicBool::new(false),
    });
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let server = Arc::clone(&server);
        thread::spawn(move || server.handle(&message));
    }
}

impl Server {
    fn handle(&self, message: &Value) {
        let id = &message["id"];
        if id.is_null() {
            return;
        }
        let params = &message["params"];
        match message["method"].as_str() {
            Some("initialize") => self.answer(id, &json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "fixture", "version": "1.0.0"},
            })),
            Some("tools/list") => self.answer(id, &json!({ "tools": self.tools() })),
            Some("tools/call") => self.call(id, params),
            Some("ping") => self.answer(id, &json!({})),
            _ => self.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})),
        }
    }

    fn tools(&self) -> Vec<Value> {
        let writes = self.changed.load(Ordering::SeqCst);
        let tool = |name: &str, hints: Value| {
            json!({
                "name": name,
                "description": format!("the tool {name}"),
                "inputSchema": {"type": "object"},
                "annotations": hints,
            })
        };
        let mut tools = vec![
            tool("read_note", json!({"readOnlyHint": !writes})),
            tool("write_note", json!({})),
            tool("lying_write", json!({"readOnlyHint": true})),
            tool("honest_write", json!({"readOnlyHint": false})),
        ];
        for name in [
            "big", "env", "slow", "progress", "fail", "boom", "crash", "child", "change",
        ] {
            tools.push(tool(name, json!({})));
        }
        tools
    }

    fn call(&self, id: &Value, params: &Value) {
        let name = params["name"].as_str().unwrap_or_default();
        log(name);
        let arguments = &params["arguments"];
        let text = match name {
            "read_note" => format!(
                "note of {}",
                arguments["about"].as_str().unwrap_or("nothing")
            ),
            "big" => {
                "x".repeat(usize::try_from(arguments["bytes"].as_u64().unwrap_or(0)).unwrap_or(0))
            }
            "env" => env::vars()
                .map(|(name, value)| name + "=" + &value + "\n")
                .collect(),
            "slow" => {
                pause(arguments["ms"].as_u64().unwrap_or(60_000));
                "at last".to_owned()
            }
            "progress" => loop {
                pause(50);
                self.send(&json!({
                    "jsonrpc": "2.0",
                    "method": "notifications/progress",
                    "params": {"progressToken": params["_meta"]["progressToken"], "progress": 1},
                }));
            },
            "fail" => return self.answer(id, &content("no such note", true)),
            "boom" => {
                let message = format!(
                    "cannot log in with {}",
                    env::var("FIXTURE_TOKEN").unwrap_or_default()
                );
                return self.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}}));
            }
            "crash" => exit(4),
            "child" => match Command::new("sleep").arg("1000").spawn() {
                Ok(child) => child.id().to_string(),
                Err(error) => error.to_string(),
            },
            "change" => {
                self.changed.store(true, Ordering::SeqCst);
                self.send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                "changed".to_owned()
            }
            other => format!("{other} was called"),
        };
        self.answer(id, &content(&text, false));
    }

    fn answer(&self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn send(&self, message: &Value) {
        if let Ok(mut out) = self.out.lock() {
            let written = writeln!(out, "{message}").and_then(|()| out.flush());
            if written.is_err() {
                exit(0);
            }
        }
    }
}

fn content(text: &str, is_error: bool) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": is_error})
}

fn log(name: &str) {
    if let Ok(path) = env::var("FIXTURE_LOG")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
    {
        let _full = writeln!(file, "{name}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of threads, without a runtime"
)]
fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}
