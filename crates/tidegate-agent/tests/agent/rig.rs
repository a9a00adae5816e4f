//! An executor between a server in memory, the scripted provider over HTTP, and tools in real child processes.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tidegate_agent::{
    DefaultModel, Executor, ExecutorSettings, ToolHost, ToolServerSpec, tools::ToolLimits,
};
use tidegate_client::worker::WorkerSettings;
use tidegate_llm::{CallRecord, Catalogue, ModelRoute, ProviderConfig, Providers, RetryPolicy};
use tidegate_mock_provider::{MockHandle, MockProvider, Scenario};
use tidegate_model::{RunId, event::EventKind};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    fake::{End, FakeServer},
    support::{SOON, name, until},
};

const SCENARIO: &str = r#"
[[rule]]
name = "loop"
when = { text_contains = "forever" }
[rule.reply]
tools = [{ tool = "read_note", arguments = {} }]

[[rule]]
name = "paint: answered"
when = { text_contains = "paint", tool_result = true }
[rule.reply]
text = "I paint it {{tool_result}}."

[[rule]]
name = "paint: ask"
when = { text_contains = "paint", tool_result = false, tool_offered = "askUser" }
[rule.reply]
text = "One question. "
tools = [{ tool = "askUser", arguments = { question = "Which colour?", choices = ["red", "blue"] } }]

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
name = "hang"
when = { text_contains = "hang" }
[rule.reply]
tools = [{ tool = "progress", arguments = {} }]

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

pub struct Rig {
    pub server: Arc<FakeServer>,
    pub mock: MockHandle,
    pub providers: Arc<Providers>,
    pub records: Arc<std::sync::Mutex<Vec<CallRecord>>>,
    pub tools: ToolHost,
    pub stop: CancellationToken,
    pub task: JoinHandle<tidegate_client::Result<()>>,
}

pub async fn rig() -> Rig {
    rig_with(Vec::new(), |_| ()).await
}

pub async fn rig_with(specs: Vec<ToolServerSpec>, edit: impl FnOnce(&mut ExecutorSettings)) -> Rig {
    let mock = MockProvider::start(Scenario::parse(SCENARIO).unwrap())
        .await
        .unwrap();
    let url = format!("{}/v1", mock.url().trim_end_matches("/v1"));
    rig_at(&url, mock, specs, edit)
}

/// With a host of tools that is there already.
pub async fn rig_using(tools: ToolHost) -> Rig {
    let mock = MockProvider::start(Scenario::parse(SCENARIO).unwrap())
        .await
        .unwrap();
    let url = format!("{}/v1", mock.url().trim_end_matches("/v1"));
    rig_of(&url, mock, tools, |_| ())
}

pub fn rig_at(
    url: &str,
    mock: MockHandle,
    specs: Vec<ToolServerSpec>,
    edit: impl FnOnce(&mut ExecutorSettings),
) -> Rig {
    let tools = ToolHost::new(ToolLimits {
        offer_wait: SOON,
        mount_timeout: SOON,
        ..ToolLimits::default()
    });
    tools.configure(specs);
    rig_of(url, mock, tools, edit)
}

fn rig_of(
    url: &str,
    mock: MockHandle,
    tools: ToolHost,
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
    pub fn ask(&self, text: &str) -> RunId {
        self.server
            .submit(|run| run.input = json!({ "text": text }))
    }

    pub async fn completed(&self, run_id: RunId) -> tidegate_model::api::CompleteRun {
        match self.server.ended(run_id).await {
            End::Completed(done) => done,
            other => panic!("must complete, not {other:?}"),
        }
    }

    pub async fn failed(&self, run_id: RunId) -> tidegate_model::api::FailRun {
        match self.server.ended(run_id).await {
            End::Failed(failed) => failed,
            other => panic!("must fail, not {other:?}"),
        }
    }

    pub async fn waited(&self, run_id: RunId) -> tidegate_model::api::WaitRun {
        match self.server.ended(run_id).await {
            End::Waiting(wait) => wait,
            other => panic!("must wait, not {other:?}"),
        }
    }

    pub fn events(&self, run_id: RunId, kind: EventKind) -> Vec<Value> {
        self.server.with(run_id, |run| {
            run.events
                .iter()
                .filter(|event| event.kind == kind)
                .map(|event| event.body.clone())
                .collect()
        })
    }

    pub async fn started(&self, run_id: RunId) {
        self.server
            .until("text arrives", |server| {
                server.kinds(run_id).contains(&EventKind::MessageDelta)
            })
            .await;
    }

    pub async fn slot_free(&self) {
        until("the slot is free", || {
            self.providers
                .views()
                .iter()
                .all(|view| view.state.as_ref().is_ok_and(|state| state.in_flight == 0))
        })
        .await;
    }

    pub async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.tools.shutdown().await;
    }
}
