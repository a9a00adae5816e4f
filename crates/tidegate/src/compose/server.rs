//! A server from its first look at the database to its last answer.

use std::{sync::Arc, time::Duration};

use tidegate_agent::{DefaultModel, Executor};
use tidegate_engine::{Engine, StartError, loops, settings::Settings};
use tidegate_llm::{CallRecord, Providers};
use tidegate_model::InstanceId;
use tidegate_server::{Local, ServerParts, Shutdown};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    catalogue::Followers,
    database::{self, Migrations},
    executor, tools,
};
use crate::{
    exit::Exit,
    failure::{Failure, Outcome, chain},
    signals::Stops,
};

/// How long the parts may take to end once nothing waits for them any more.
const ENDING: Duration = Duration::from_secs(5);

/// A server that is bound and ready to serve.
pub struct Server {
    engine: Engine,
    parts: ServerParts,
    executor: Option<Executor>,
    followers: Followers,
    shutdown: Shutdown,
    url: String,
    metrics_url: Option<String>,
    applied: watch::Receiver<i64>,
    loops: JoinSet<()>,
    stop_loops: CancellationToken,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Everything up to a listener. Each refusal has its exit code (R1.1). `local` was taken with these settings before
    /// the database is touched.
    pub async fn start(
        settings: Arc<Settings>,
        local: Local,
        migrations: Migrations,
    ) -> Outcome<Self> {
        settings.require_for_serve()?;
        let keyring = database::keyring(&settings)?;
        let store = database::open(&settings)?;
        let instance = InstanceId::new();
        let by = format!("serve {instance}");
        let report =
            database::prepare(&store, &by, migrations, Some(&keyring), database::PATIENCE).await?;
        if let Some(warning) = &report.warning {
            tracing::warn!("{warning}");
        }
        if !report.applied.is_empty() {
            tracing::info!(migrations = ?report.applied, "the database was migrated");
        }
        let engine = Engine::start(settings, store.clone(), keyring.clone(), instance)
            .await
            .map_err(|error| match error {
                StartError::WrongKey(error) => database::secret_failure(&error),
                StartError::Engine(error) => database::engine_failure(&error),
                other => Failure::failed(chain(&other)),
            })?;
        if let Some(idle) = database::idle_previous_key(&store, &keyring).await? {
            tracing::warn!("{idle}");
        }
        Self::bind(engine, local).await
    }

    async fn bind(engine: Engine, local: Local) -> Outcome<Self> {
        let shutdown = Shutdown::new();
        let parts = ServerParts::new(local, engine.clone(), shutdown.clone())
            .map_err(|error| Failure::usage(chain(&error)))?;
        tidegate_llm::describe_metrics();
        tidegate_agent::describe_metrics();
        let settings = engine.settings();
        let followers = Followers {
            providers: Arc::new(Providers::new(Arc::new(trace_call))),
            tools: tools::host(settings)?,
            default_model: DefaultModel::default(),
        };
        let executor = executor::build(&engine, &followers, &shutdown)?;
        let failed = |error| Failure::caused(Exit::Failed, "the listener has no address", &error);
        let scheme = if settings.tls_cert.is_some() {
            "https"
        } else {
            "http"
        };
        let url = format!("{scheme}://{}", parts.address().map_err(failed)?);
        let metrics_url = parts
            .metrics_address()
            .transpose()
            .map_err(failed)?
            .map(|address| format!("http://{address}"));
        let stop_loops = CancellationToken::new();
        let loops = loops::spawn(&engine, &stop_loops);
        let (applying, applied) = watch::channel(-1);
        engine.platform().bus().wait_for(applied.clone());
        let mut server = Self {
            engine,
            parts,
            executor,
            followers,
            shutdown,
            url,
            metrics_url,
            applied,
            loops,
            stop_loops,
        };
        server.follow_catalogue(applying).await;
        Ok(server)
    }

    /// The executor must not meet a run before it knows a model.
    async fn follow_catalogue(&mut self, applying: watch::Sender<i64>) {
        let following =
            self.followers
                .clone()
                .follow(self.engine.clone(), applying, self.stop_loops.clone());
        self.loops.spawn(following);
        let tools = self.followers.tools.clone();
        self.loops.spawn(tools::report(
            self.engine.clone(),
            tools,
            self.stop_loops.clone(),
        ));
        let first = self.applied.wait_for(|revision| *revision >= 0);
        // A catalogue that cannot be read now is read again and again; runs fail with a clear code until then.
        let _late = timeout(ENDING, first).await;
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the operator's listener is.
    pub fn metrics_url(&self) -> Option<&str> {
        self.metrics_url.as_deref()
    }

    /// The use cases.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The catalogue's revision that providers and tools of this process are at.
    pub fn applied(&self) -> watch::Receiver<i64> {
        self.applied.clone()
    }

    /// Serves until asked to end, then drains (R1.7): not ready and no claims at once; running attempts get the grace
    /// and are handed back; streams end with a position to resume from. A second request ends at once, losing nothing.
    pub async fn run(self, mut stops: Stops) -> Outcome {
        let Self {
            engine,
            parts,
            executor,
            followers,
            shutdown,
            mut loops,
            stop_loops,
            ..
        } = self;
        let grace = Duration::from_millis(engine.settings().grace_ms.into());
        let mut executing = executor.map(|executor| {
            let draining = shutdown.draining().clone();
            tokio::spawn(executor.run(draining))
        });
        let mut serving = tokio::spawn(tidegate_server::serve(parts));
        let mut outcome = Ok(Exit::Success);
        tokio::select! {
            () = stops.next() => tracing::info!("draining; ask again to end at once"),
            served = &mut serving => return Err(ended(served)),
            executed = finished(&mut executing) => {
                outcome = Err(Failure::failed(format!("the built-in executor ended: {executed}")));
            }
        }
        shutdown.drain();
        engine.drain();
        let orderly = async {
            if let Some(executing) = &mut executing {
                let _late = timeout(grace + ENDING, executing).await;
            }
            shutdown.close();
            let _late = timeout(grace + ENDING, &mut serving).await;
            stop_loops.cancel();
            let _late = timeout(ENDING, async { while loops.join_next().await.is_some() {} }).await;
            let _late = timeout(ENDING, followers.tools.shutdown()).await;
        };
        tokio::select! {
            () = orderly => tracing::info!("drained"),
            () = stops.next() => tracing::warn!("ending at once"),
        }
        shutdown.end();
        outcome
    }
}

/// How the executor ended; never where there is none, or where it was asked to end.
async fn finished(executing: &mut Option<JoinHandle<tidegate_client::Result<()>>>) -> String {
    match executing {
        None => std::future::pending().await,
        Some(handle) => match handle.await {
            Ok(Ok(())) => "without being asked to".to_owned(),
            Ok(Err(error)) => chain(&error),
            Err(error) => chain(&error),
        },
    }
}

fn ended(
    served: Result<Result<(), tidegate_server::ServeError>, tokio::task::JoinError>,
) -> Failure {
    match served {
        Ok(Ok(())) => Failure::failed("the listener ended without being asked to"),
        Ok(Err(error)) => Failure::failed(chain(&error)),
        Err(error) => Failure::failed(chain(&error)),
    }
}

/// One line per model call, without contents.
fn trace_call(record: &CallRecord) {
    tracing::debug!(
        provider = %record.provider,
        model = record.model,
        outcome = record.outcome.as_str(),
        "model call"
    );
}
