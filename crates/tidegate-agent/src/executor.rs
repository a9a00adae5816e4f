//! The executor: a worker whose handler is the agent loop.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::RwLock;
use tidegate_client::{
    WorkerApi,
    worker::{Failure, Handler, Job, Outcome, Stop, WorkerLoop, WorkerSettings},
};
use tidegate_llm::{Providers, catalogue};
use tidegate_model::{Code, ids::CatalogName};
use tokio_util::sync::CancellationToken;

use crate::{ToolHost, cutoff::CutOff, failure::DEFAULT_LOCALE, limits, turn::Turn};

/// The model of runs whose capability names none; set anew with each revision of the catalogue. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct DefaultModel(Arc<RwLock<Option<CatalogName>>>);

impl DefaultModel {
    /// Takes the model that the catalogue marks as default.
    pub fn set(&self, alias: Option<CatalogName>) {
        *self.0.write() = alias;
    }

    /// The model in force.
    pub fn get(&self) -> Option<CatalogName> {
        self.0.read().clone()
    }
}

/// How the executor works.
#[derive(Debug, Clone)]
pub struct ExecutorSettings {
    /// How it claims.
    pub worker: WorkerSettings,
    /// The operator's instructions to every model.
    pub system_prompt: String,
    /// Model calls of one turn.
    pub max_steps: u32,
    /// Whether a model may ask the person of a conversation and wait for the answer.
    pub ask_user: bool,
    /// The model of runs whose capability names none.
    pub model: DefaultModel,
    /// The name that people read.
    pub brand: String,
    /// The language that people read.
    pub locale: catalogue::Locale,
}

impl ExecutorSettings {
    /// Defaults for this worker.
    pub fn new(worker: WorkerSettings, model: DefaultModel) -> Self {
        Self {
            worker,
            system_prompt: String::new(),
            max_steps: limits::STEPS,
            ask_user: true,
            model,
            brand: catalogue::DEFAULT_BRAND.to_owned(),
            locale: DEFAULT_LOCALE,
        }
    }
}

/// The built-in executor.
#[derive(Debug)]
pub struct Executor {
    api: Arc<dyn WorkerApi>,
    agent: Agent,
}

impl Executor {
    /// An executor that has not begun.
    pub fn new(
        api: Arc<dyn WorkerApi>,
        providers: Arc<Providers>,
        tools: ToolHost,
        settings: ExecutorSettings,
    ) -> Self {
        let agent = Agent {
            providers,
            tools,
            settings,
        };
        Self { api, agent }
    }

    /// Works until `stop`, then drains (R1.7). An error is one that no repetition can cure.
    pub async fn run(self, stop: CancellationToken) -> tidegate_client::Result<()> {
        let worker = self.agent.settings.worker.clone();
        let handler = Arc::new(self.agent);
        WorkerLoop::new(self.api, handler, worker).run(stop).await
    }
}

/// What turns work with.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) providers: Arc<Providers>,
    pub(crate) tools: ToolHost,
    pub(crate) settings: ExecutorSettings,
}

#[async_trait]
impl Handler for Agent {
    async fn run(&self, job: &Job) -> Outcome {
        let cutoff = CutOff::of(job);
        let mut stop = job.stop();
        let outcome = tokio::select! {
            biased;
            // R3.10: dropping the turn drops its model call and its tool calls.
            _ = stop.wait(Stop::Cancel) => Outcome::Failed(Failure::cancelled()),
            failure = cutoff.passed() => Outcome::Failed(failure),
            outcome = Turn::new(self, job, cutoff).run() => outcome,
        };
        if let Outcome::Failed(failure) = &outcome {
            tracing::info!(code = %failure.code, retryable = failure.retryable, "attempt failed");
        }
        outcome
    }
}

/// A failure to read what the run is about.
pub(crate) fn no_context(error: &tidegate_client::Error) -> Failure {
    Failure {
        retryable: true,
        retry_after: Some(Duration::from_secs(1)),
        ..Failure::new(
            Code::WorkerFailed,
            format!("the conversation cannot be read: {error}"),
        )
    }
}
