//! `kill -9` in the middle of a call of a tool.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use tidegate_client::Client;
use tidegate_model::{
    Code, RunId,
    api::{
        CreateConversation, CreateKey, KeyGrants, PutToolServer, ResolveRun, SideEffectLevel,
        StdioTransport, SubmitRun, SubmitTurn, ToolMount, ToolTransport,
    },
    effect::ReviewVerdict,
    event::EventKind,
    principal::{KeyScope, Role},
    run::RunState,
};
use tidegate_testkit::TestDb;

use crate::rig::{World, serve};

/// Calls the tool that the turn names, and then says so.
const SCENARIO: &str = r#"
name = "effects"
[[rule]]
name = "told"
when = { tool_result = true }
reply = { text = "The tool said: {{tool_result}}" }
[[rule]]
name = "post"
when = { text_contains = "post" }
reply = { tools = [{ tool = "post", arguments = { amount = 5 } }] }
[[rule]]
name = "put"
when = { text_contains = "put" }
reply = { tools = [{ tool = "put", arguments = { amount = 5 } }] }
[[rule]]
name = "poison"
when = { text_contains = "poison" }
reply = { tools = [{ tool = "poison", arguments = {} }] }
[[rule]]
name = "hello"
reply = { text = "Hello." }
"#;

/// An MCP server that writes down each call, and answers it once the gate is open; its poison kills whoever called.
/// Goes with whoever started it.
const SERVER: &str = r#"
import json, os, signal, sys, time
log, gate = sys.argv[1:]
parent = os.getppid()

def say(message_id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": message_id, "result": result}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        say(message["id"], {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "ledger", "version": "1"}})
    elif method == "tools/list":
        tools = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("post", "put", "poison")]
        say(message["id"], {"tools": tools})
    elif method == "tools/call":
        with open(log, "a") as calls:
            calls.write(params["name"] + "\n")
        if params["name"] == "poison":
            os.kill(parent, signal.SIGKILL)
        while not os.path.exists(gate):
            if os.getppid() != parent:
                sys.exit()
            time.sleep(0.02)
        say(message["id"], {"content": [{"type": "text", "text": "booked"}]})
    else:
        say(message["id"], {})
"#;

struct Ledger {
    world: World,
    dir: tempfile::TempDir,
}

impl Ledger {
    /// One server that only answers callers, and the tools; executors come and go.
    async fn new() -> Self {
        let world = World::with_scenario(TestDb::new().await, 1, 0, 1, SCENARIO).await;
        let dir = tempfile::tempdir().expect("dir");
        let script = dir.path().join("ledger.py");
        std::fs::write(&script, SERVER).expect("script");
        let text = |path: &Path| path.to_str().expect("path").to_owned();
        let put = PutToolServer {
            transport: ToolTransport::Stdio(StdioTransport {
                command: "python3".to_owned(),
                args: vec![
                    text(&script),
                    text(&dir.path().join("calls")),
                    text(&dir.path().join("gate")),
                ],
                env: BTreeMap::new(),
            }),
            mount: ToolMount::default(),
            tools: BTreeMap::from([
                ("post".to_owned(), SideEffectLevel::Write),
                ("put".to_owned(), SideEffectLevel::Idempotent),
                ("poison".to_owned(), SideEffectLevel::Read),
            ]),
            tenants: None,
            call_timeout_ms: None,
            idle_timeout_ms: None,
        };
        let name = "ledger".parse().expect("name");
        let admin = &world.admin;
        admin.put_tool_server(&name, &put).await.expect("tools");
        Self { world, dir }
    }

    fn tenant(&self) -> &Client {
        &self.world.tenants[0].1
    }

    fn gate(&self) -> PathBuf {
        self.dir.path().join("gate")
    }

    fn calls(&self) -> usize {
        let calls = std::fs::read_to_string(self.dir.path().join("calls"));
        calls.unwrap_or_default().lines().count()
    }

    /// Starts an executor that works on a turn, and kills it once its tool has been called.
    async fn kill_in_a_call(&mut self, input: &str) -> RunId {
        let run = self.begin_a_call(input).await;
        self.world.servers.last_mut().expect("it").process.kill9();
        run
    }

    /// Starts an executor that works on a turn, and waits until its tool has been called.
    async fn begin_a_call(&mut self, input: &str) -> RunId {
        let before = self.calls();
        let executor = serve(&self.world.db, "4").await;
        self.world.servers.push(executor);
        let conversation = CreateConversation::default();
        let tenant = self.tenant();
        let conversation = tenant.create_conversation(&conversation).await;
        let turn = SubmitTurn {
            input: input.to_owned(),
            capability: None,
            requirements: None,
            service_class: None,
            deadline: None,
            user: None,
        };
        let id = conversation.expect("conversation").conversation_id;
        let run = tenant.submit_turn(id, &turn, None).await.expect("turn");
        let called = std::time::Instant::now() + Duration::from_mins(1);
        while self.calls() == before {
            assert!(
                std::time::Instant::now() < called,
                "the tool is never called\n{}",
                self.world.logs()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        run.run_id
    }

    /// The text that the run gave back.
    async fn answer(&self, run: RunId) -> String {
        let ended = format!(
            "SELECT count(*) FROM run_ends WHERE run_id = '{}'",
            run.as_uuid()
        );
        self.world.until_count(&ended, 1).await;
        let run = self.tenant().run(run).await.expect("run");
        assert_eq!(run.state, RunState::Succeeded, "{:?}", run.detail);
        run.result.expect("result")["text"].to_string()
    }
}

/// R4.5: a call that may not be repeated is made once, however its executor dies and whatever a person says of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_call_is_never_repeated() {
    let mut ledger = Ledger::new().await;
    let review = "SELECT count(*) FROM run_parked WHERE why = 'review'";
    for (index, (verdict, told)) in [
        (ReviewVerdict::ConfirmDone, Some("was carried out")),
        (ReviewVerdict::ConfirmNotDone, Some("was not carried out")),
        (ReviewVerdict::Abandon, None),
    ]
    .into_iter()
    .enumerate()
    {
        let run = ledger.kill_in_a_call("post it").await;
        ledger.world.until_count(review, 1).await;
        let asked = ledger.tenant().run(run).await.expect("run");
        let effects = asked.review.expect("review").effects;
        assert_eq!(effects[0].tool, "ledger/post");
        let resolve = ResolveRun {
            verdict,
            call_id: None,
            note: None,
        };
        let resolved = ledger.tenant().resolve_run(run, &resolve).await;
        let resolved = resolved.expect("resolved");
        if let Some(told) = told {
            let executor = serve(&ledger.world.db, "4").await;
            ledger.world.servers.push(executor);
            let answer = ledger.answer(run).await;
            assert!(answer.contains(told), "{answer}");
            ledger.world.servers.pop();
        } else {
            assert_eq!(resolved.state, RunState::Failed);
        }
        assert_eq!(ledger.calls(), index + 1, "one call for each run");
    }
    tidegate_testkit::audit(ledger.world.db.pool()).await;
}

/// R4.5, R4.4: an idempotent call is made again by the next attempt, under the same call id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_idempotent_call_is_made_again() {
    let mut ledger = Ledger::new().await;
    let run = ledger.kill_in_a_call("put it").await;
    std::fs::write(ledger.gate(), "").expect("gate");
    let executor = serve(&ledger.world.db, "4").await;
    ledger.world.servers.push(executor);
    let answer = ledger.answer(run).await;
    assert!(answer.contains("booked"), "{answer}");
    assert_eq!(ledger.calls(), 2);
    let ids: Vec<serde_json::Value> = sqlx::query_scalar(
        "SELECT body -> 'callId' FROM run_events WHERE run_id = $1 AND kind = $2 ORDER BY seq",
    )
    .bind(run.as_uuid())
    .bind(EventKind::ToolCalled.as_str())
    .fetch_all(ledger.world.db.pool())
    .await
    .expect("events");
    assert_eq!((ids.len(), &ids[0]), (2, &ids[1]));
    let effects = ledger.tenant().explain_run(run).await.expect("explain");
    assert_eq!(json!(effects.effects[0].outcome), "done");
    tidegate_testkit::audit(ledger.world.db.pool()).await;
}

/// O-32, R3.11: a run that kills its worker takes three of them with it and then is a dead letter; the others go on, and
/// what ran beside it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisonous_run_stops_at_its_attempts() {
    let mut ledger = Ledger::new().await;
    let key = CreateKey {
        role: Role::Member,
        tenant: Some(ledger.world.tenants[0].0.clone()),
        pool: None,
        user: None,
        scopes: vec![KeyScope::RunsBusiness],
        grants: KeyGrants::default(),
        name: None,
        expires_at: None,
    };
    let key = ledger.world.admin.create_key(&key).await.expect("key");
    let secret = key.secret.expect("shown once");
    let client = Client::new(&ledger.world.servers[0].url, secret).expect("client");
    let poison: SubmitRun = serde_json::from_value(
        json!({"capability": "chat", "input": {"text": "poison"}, "maxAttempts": 3}),
    )
    .expect("body");
    let run = client.submit_run(&poison, None).await.expect("run").run_id;
    for _ in 0..6 {
        ledger.world.turn(0).await;
    }
    for _ in 0..4 {
        let executor = serve(&ledger.world.db, "1").await;
        ledger.world.servers.push(executor);
    }
    let ended = "SELECT count(*) FROM run_ends";
    ledger.world.until_count(ended, 7).await;
    let dead = client.run(run).await.expect("run");
    assert_eq!(
        (dead.state, dead.code, dead.attempts),
        (RunState::Failed, Some(Code::AttemptsExhausted), 3)
    );
    assert_eq!(ledger.calls(), 3, "three workers were lost");
    let done = "SELECT count(*) FROM run_ends WHERE state = 'succeeded'";
    assert_eq!(ledger.world.count(done).await, 6);
    tidegate_testkit::audit(ledger.world.db.pool()).await;
}

/// O-32, R3.10: a run that was cancelled during its attempt is not claimed again, whatever becomes of its worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_is_not_claimed_after_its_worker_died() {
    let mut ledger = Ledger::new().await;
    let run = ledger.begin_a_call("put it").await;
    ledger.tenant().cancel_run(run).await.expect("cancel");
    ledger.world.servers.last_mut().expect("it").process.kill9();
    let executor = serve(&ledger.world.db, "4").await;
    ledger.world.servers.push(executor);
    let cancelled = "SELECT count(*) FROM run_ends WHERE state = 'cancelled'";
    ledger.world.until_count(cancelled, 1).await;
    let attempts = "SELECT count(*) FROM run_attempts";
    assert_eq!(ledger.world.count(attempts).await, 1);
    assert_eq!(ledger.calls(), 1);
    tidegate_testkit::audit(ledger.world.db.pool()).await;
}
