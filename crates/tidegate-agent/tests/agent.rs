//! The agent loop end to end: a server in memory, the scripted provider over HTTP, tools in real child processes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

#[path = "../../tidegate-client/tests/fake/mod.rs"]
mod fake;
mod raw;
mod support;

use std::{sync::Arc, time::Duration};

use fake::{End, FakeServer, Fault, message};
use serde_json::{Value, json};
use support::{SOON, acme, name, spec, until};
use tidegate_agent::{
    DefaultModel, Executor, ExecutorSettings, ToolHost, ToolServerSpec, tools::ToolLimits,
};
use tidegate_client::worker::WorkerSettings;
use tidegate_llm::{
    CallClass, CallRecord, Catalogue, ModelRoute, ProviderConfig, Providers, RetryPolicy,
};
use tidegate_mock_provider::{MockHandle, MockProvider, Scenario};
use tidegate_model::{
    Code, ConversationId, RunId,
    api::{MessageRole, RunBudget},
    event::EventKind,
    run::QuotaBucket,
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

const SCENARIO: &str = r#"
[[rule]]
name = "loop"
when = { text_contains = "forever" }
[rule.reply]
tools = [{ tool = "read_note", arguments = {} }]

[[rule]]
name = "notes: look"
when = { text_contains = "notes", tool_result = false, tool_offered = "read_note" }
[rule.reply]
text = "I look. "
tools = [{ tool = "read_note", arguments = { about = "tides" } }]

[[rule]]
name = "notes: answer"
when = { tool_result = true }
[rule.reply]
text = "The note says: {{tool_result}}."
input_tokens = 30
output_tokens = 5

[[rule]]
name = "slow"
when = { text_contains = "slowly" }
[rule.reply]
delay_ms = 100
text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"

[[rule]]
name = "throttled"
when = { text_contains = "throttle" }
fault = { kind = "status", status = 429, message = "slow down", retry_after_ms = 60000 }

[[rule]]
name = "cut"
when = { text_contains = "cut" }
fault = { kind = "cut", after_chunks = 3 }
[rule.reply]
text = "this answer breaks off somewhere in the middle"

[[rule]]
name = "hello"
[rule.reply]
text = "Hello, how are you today?"
input_tokens = 20
output_tokens = 6
"#;

struct Rig {
    server: Arc<FakeServer>,
    mock: MockHandle,
    providers: Arc<Providers>,
    records: Arc<std::sync::Mutex<Vec<CallRecord>>>,
    tools: ToolHost,
    stop: CancellationToken,
    task: JoinHandle<tidegate_client::Result<()>>,
}

async fn rig() -> Rig {
    rig_with(Vec::new(), |_| ()).await
}

async fn rig_with(specs: Vec<ToolServerSpec>, edit: impl FnOnce(&mut ExecutorSettings)) -> Rig {
    let mock = MockProvider::start(Scenario::parse(SCENARIO).unwrap())
        .await
        .unwrap();
    let url = format!("{}/v1", mock.url().trim_end_matches("/v1"));
    rig_at(&url, mock, specs, edit)
}

fn rig_at(
    url: &str,
    mock: MockHandle,
    specs: Vec<ToolServerSpec>,
    edit: impl FnOnce(&mut ExecutorSettings),
) -> Rig {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let records = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&records);
    let recorder = move |record: &CallRecord| sink.lock().unwrap().push(record.clone());
    let providers = Arc::new(Providers::new(Arc::new(recorder)));
    let mut config = ProviderConfig::new(name("mock"), url);
    config.retry = RetryPolicy::NONE;
    let route = ModelRoute {
        alias: name("main"),
        provider: name("mock"),
        model: "scripted".to_owned(),
    };
    let unusable = providers.replace(Catalogue {
        providers: vec![config],
        models: vec![route],
        ..Catalogue::default()
    });
    assert_eq!(unusable, vec![]);
    let tools = ToolHost::new(ToolLimits::default());
    tools.configure(specs);
    let model = DefaultModel::default();
    model.set(Some(name("main")));
    let mut worker = WorkerSettings::new("builtin".parse().unwrap(), 1, 4);
    worker.renew_every = Some(Duration::from_millis(100));
    worker.claim_wait = Duration::from_millis(200);
    worker.grace = Duration::from_millis(500);
    let mut settings = ExecutorSettings::new(worker, model);
    edit(&mut settings);
    let server = FakeServer::new(Duration::from_secs(30));
    let executor = Executor::new(
        Arc::clone(&server) as _,
        Arc::clone(&providers),
        tools.clone(),
        settings,
    );
    let stop = CancellationToken::new();
    let task = tokio::spawn(executor.run(stop.clone()));
    Rig {
        server,
        mock,
        providers,
        records,
        tools,
        stop,
        task,
    }
}

impl Rig {
    fn ask(&self, text: &str) -> RunId {
        self.server
            .submit(|run| run.input = json!({ "text": text }))
    }

    async fn completed(&self, run_id: RunId) -> tidegate_model::api::CompleteRun {
        match self.server.ended(run_id).await {
            End::Completed(done) => done,
            other => panic!("must complete, not {other:?}"),
        }
    }

    async fn failed(&self, run_id: RunId) -> tidegate_model::api::FailRun {
        match self.server.ended(run_id).await {
            End::Failed(failed) => failed,
            other => panic!("must fail, not {other:?}"),
        }
    }

    fn events(&self, run_id: RunId, kind: EventKind) -> Vec<Value> {
        self.server.with(run_id, |run| {
            run.events
                .iter()
                .filter(|event| event.kind == kind)
                .map(|event| event.body.clone())
                .collect()
        })
    }

    async fn started(&self, run_id: RunId) {
        self.server
            .until("text arrives", |server| {
                server.kinds(run_id).contains(&EventKind::MessageDelta)
            })
            .await;
    }

    async fn slot_free(&self) {
        until("the slot is free", || {
            self.providers
                .views()
                .iter()
                .all(|view| view.state.as_ref().is_ok_and(|state| state.in_flight == 0))
        })
        .await;
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.tools.shutdown().await;
    }
}

/// R20.3: model, tool, model; streamed, numbered, with its messages and its use.
#[tokio::test]
async fn a_turn_calls_a_tool_and_answers() {
    let rig = rig_with(vec![spec("normal")], |settings| {
        "Be brief.".clone_into(&mut settings.system_prompt);
    })
    .await;
    let run_id = rig
        .server
        .submit(|run| run.conversation_id = Some(ConversationId::new()));
    rig.server.set_messages(
        run_id,
        vec![
            message(1, MessageRole::User, json!({"text": "earlier question"})),
            message(2, MessageRole::Assistant, json!({"text": "earlier answer"})),
            message(
                3,
                MessageRole::User,
                json!({"text": "what do my notes say?"}),
            ),
        ],
    );
    let done = rig.completed(run_id).await;
    assert_eq!(
        done.result["text"], "The note says: note of tides.",
        "{}",
        done.result
    );
    assert_eq!(done.result["steps"], 2);
    let roles: Vec<_> = done.messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [
            MessageRole::Assistant,
            MessageRole::Tool,
            MessageRole::Assistant
        ]
    );
    assert_eq!(
        done.messages[0].content["toolCalls"][0]["tool"],
        "notes/read_note"
    );
    assert_eq!(done.messages[1].content["text"], "note of tides");
    assert!(done.usage.tokens >= 35, "{:?}", done.usage);
    let asked = rig.mock.requests().remove(0);
    let roles: Vec<_> = asked["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].clone())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    let streamed: String = rig
        .events(run_id, EventKind::MessageDelta)
        .iter()
        .filter_map(|body| body["text"].as_str())
        .collect();
    assert_eq!(streamed, "I look. The note says: note of tides.");
    assert_eq!(
        rig.events(run_id, EventKind::WorkerNote)[0]["tools"]["notes__read_note"],
        "notes/read_note"
    );
    let finished = rig.events(run_id, EventKind::ToolFinished);
    assert_eq!(
        (&finished[0]["tool"], &finished[0]["isError"]),
        (&json!("notes/read_note"), &json!(false))
    );
    assert_eq!(rig.events(run_id, EventKind::ModelCalled).len(), 2);
    rig.end().await;
}

/// O-21, R20.3: a call of a tool that writes is refused with its own code, to the model and in the run's events.
#[tokio::test]
async fn a_call_of_a_writing_tool_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("calls");
    let mut notes = spec("normal");
    notes
        .env
        .insert("FIXTURE_LOG".to_owned(), log.to_str().unwrap().into());
    let provider = raw::RawProvider::start(vec![
        raw::tool_call("notes__write_note", r#"{"text": "mine"}"#),
        raw::tool_call("no_such_tool", "{}"),
        raw::text("I may not."),
    ])
    .await;
    let mock = MockProvider::start(Scenario::default()).await.unwrap();
    let rig = rig_at(&provider.url, mock, vec![notes], |_| ());
    let run_id = rig.ask("write it down");
    let done = rig.completed(run_id).await;
    assert_eq!(done.result["text"], "I may not.");
    let codes: Vec<_> = rig
        .events(run_id, EventKind::ToolFinished)
        .iter()
        .map(|body| body["code"].clone())
        .collect();
    assert_eq!(codes, ["TOOL_NOT_READ_ONLY", "TOOL_UNAVAILABLE"]);
    let told = provider.requests()[1]["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["content"]
        .to_string();
    assert!(told.contains("TOOL_NOT_READ_ONLY"), "{told}");
    assert!(!log.exists(), "the server heard nothing");
    rig.end().await;
}

/// R3.10: a cancel drops the model call in flight and frees its slot.
#[tokio::test]
async fn cancel_stops_the_model_call() {
    let rig = rig().await;
    let run_id = rig.ask("answer slowly");
    rig.started(run_id).await;
    rig.server.cancel(run_id);
    let asked = Instant::now();
    let failed = rig.failed(run_id).await;
    assert_eq!((failed.code, failed.retryable), (Code::Cancelled, false));
    assert!(failed.usage.tokens > 0, "what was used is reported");
    assert!(
        asked.elapsed() < Duration::from_secs(1),
        "{:?}",
        asked.elapsed()
    );
    rig.slot_free().await;
    assert!(
        rig.mock
            .until(SOON, |stats| stats.aborted == 1 && stats.in_flight == 0)
            .await
    );
    rig.end().await;
}

/// R3.11: deadline, execution time and tokens each cut a turn off, with their own code.
#[tokio::test]
async fn bounds_of_a_run_cut_it_off() {
    let rig = rig().await;
    let budget = |tokens, execution_ms| RunBudget {
        tokens,
        execution_ms,
    };
    for (text, deadline, budget, code) in [
        (
            "slowly",
            Some(400),
            RunBudget::default(),
            Code::DeadlineExceeded,
        ),
        (
            "slowly",
            None,
            budget(None, Some(400)),
            Code::BudgetExhausted,
        ),
        ("slowly", None, budget(Some(5), None), Code::BudgetExhausted),
        ("hello", None, budget(Some(0), None), Code::BudgetExhausted),
    ] {
        let started = Instant::now();
        let run_id = rig.server.submit(|run| {
            run.input = json!(text);
            run.deadline_in_ms = deadline;
            run.budget_left = budget;
        });
        let failed = rig.failed(run_id).await;
        assert_eq!(
            (failed.code, failed.retryable),
            (code, false),
            "{text} {deadline:?} {budget:?}"
        );
        assert!(
            started.elapsed() < Duration::from_millis(1_300),
            "{:?}",
            started.elapsed()
        );
        rig.slot_free().await;
    }
    let requests = rig.mock.stats().requests;
    assert_eq!(requests, 3, "nothing is asked without tokens");
    rig.end().await;
}

#[tokio::test]
async fn failures_keep_their_code_and_their_time() {
    let rig = rig_with(vec![spec("normal")], |settings| settings.max_steps = 3).await;
    let cut = rig.failed(rig.ask("please cut this secret-question")).await;
    assert_eq!((cut.code, cut.retryable), (Code::ProviderFailed, true));
    assert!(cut.usage.tokens > 0 && !cut.detail.unwrap().contains("secret-question"));
    let endless = rig.failed(rig.ask("go on forever")).await;
    assert_eq!(
        (endless.code, endless.retryable),
        (Code::AgentStepsExhausted, false)
    );
    // Last: the limiter keeps the gate shut for as long as the provider asked.
    let throttled = rig.failed(rig.ask("throttle me")).await;
    assert_eq!(
        (throttled.code, throttled.retryable),
        (Code::ProviderFailed, true)
    );
    assert_eq!(throttled.retry_after_ms, Some(60_000));
    rig.end().await;
}

#[tokio::test]
async fn a_missing_model_says_what_to_do() {
    let rig = rig_with(Vec::new(), |settings| settings.model.set(None)).await;
    let failed = rig.failed(rig.ask("hello")).await;
    assert_eq!(
        (failed.code, failed.retryable),
        (Code::ModelNotConfigured, false)
    );
    assert!(failed.detail.unwrap().contains("tidegate model set"));
    rig.end().await;
}

/// R4.2, R4.4: an attempt that lost its lease stops its model call; the next one starts from the conversation again.
#[tokio::test]
async fn a_taken_over_run_is_told_again() {
    let rig = rig().await;
    let run_id = rig.ask("answer slowly");
    rig.started(run_id).await;
    rig.server.take_over(run_id);
    let done = rig.completed(run_id).await;
    assert!(done.result["text"].as_str().unwrap().ends_with("seventeen"));
    assert_eq!(
        rig.server
            .with(run_id, |run| (run.attempts, run.ends.len())),
        (2, 1)
    );
    assert!(
        rig.mock
            .until(SOON, |stats| stats.aborted == 1 && stats.completed == 1)
            .await
    );
    rig.end().await;
}

/// R1.7: draining lets a short turn finish and hands a long one back with what it used.
#[tokio::test]
async fn draining_hands_a_long_turn_back() {
    let rig = rig().await;
    let run_id = rig.ask("answer slowly");
    rig.started(run_id).await;
    rig.stop.cancel();
    let End::Released(released) = rig.server.ended(run_id).await else {
        panic!("must be handed back")
    };
    assert!(released.usage.tokens > 0);
    rig.slot_free().await;
    rig.end().await;
}

/// R13.1: the class of a model call follows the run's bucket.
#[tokio::test]
async fn background_runs_wait_behind_foreground_ones() {
    let rig = rig().await;
    for bucket in [
        QuotaBucket::Background,
        QuotaBucket::Foreground,
        QuotaBucket::Uncounted,
    ] {
        let run_id = rig.server.submit(|run| run.quota_bucket = bucket);
        rig.completed(run_id).await;
    }
    let classes: Vec<_> = rig
        .records
        .lock()
        .unwrap()
        .iter()
        .map(|record| record.class)
        .collect();
    assert_eq!(
        classes,
        [
            CallClass::Background,
            CallClass::Foreground,
            CallClass::Foreground
        ]
    );
    rig.end().await;
}

#[tokio::test]
async fn an_empty_answer_is_no_success() {
    let provider = raw::RawProvider::start(vec![raw::text("")]).await;
    let mock = MockProvider::start(Scenario::default()).await.unwrap();
    let rig = rig_at(&provider.url, mock, Vec::new(), |_| ());
    let failed = rig.failed(rig.ask("hello")).await;
    assert_eq!(
        (failed.code, failed.retryable),
        (Code::ProviderFailed, true)
    );
    rig.end().await;
}

/// Answers of the platform that are lost are asked for again; a reader sees each event once.
#[tokio::test]
async fn a_flaky_server_changes_nothing() {
    let rig = rig_with(vec![spec("normal")], |_| ()).await;
    rig.server.fault(
        "events",
        [Fault::LoseAnswer, Fault::Refuse, Fault::LoseAnswer],
    );
    rig.server.fault("complete", [Fault::Refuse]);
    rig.server.fault("renew", [Fault::Refuse]);
    let run_id = rig.ask("what do my notes say?");
    let done = rig.completed(run_id).await;
    assert_eq!(done.result["text"], "The note says: note of tides.");
    assert_eq!(done.messages.len(), 3);
    let streamed: String = rig
        .events(run_id, EventKind::MessageDelta)
        .iter()
        .filter_map(|body| body["text"].as_str())
        .collect();
    assert_eq!(streamed, "I look. The note says: note of tides.");
    rig.end().await;
}

#[tokio::test]
async fn tenants_get_their_own_tools() {
    let mut notes = spec("normal");
    notes.tenants = Some(vec!["globex".parse().unwrap()]);
    let rig = rig_with(vec![notes], |_| ()).await;
    let done = rig.completed(rig.ask("what do my notes say?")).await;
    assert_eq!(
        done.result["text"],
        "Hello, how are you today?",
        "{} has no tools",
        acme()
    );
    assert!(
        rig.mock.requests()[0]["tools"]
            .as_array()
            .is_none_or(Vec::is_empty)
    );
    rig.end().await;
}
