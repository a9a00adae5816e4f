//! The built-in executor of a chat instance: a client of the worker protocol like any other.

use std::{sync::Arc, time::Duration};

use tidegate_agent::{Executor, ExecutorSettings};
use tidegate_client::worker::WorkerSettings;
use tidegate_engine::{
    Engine, Principal,
    settings::{Language, Settings},
};
use tidegate_llm::catalogue::Locale;
use tidegate_model::PoolId;
use tidegate_server::{InProcessWorker, Shutdown};

use super::catalogue::Followers;
use crate::failure::{Failure, Outcome};

/// The executor of this process, or nothing where it executes nothing.
pub fn build(
    engine: &Engine,
    followers: &Followers,
    shutdown: &Shutdown,
) -> Outcome<Option<Executor>> {
    let settings = engine.settings();
    if !settings.roles.chat || settings.run_execution_concurrency == 0 {
        return Ok(None);
    }
    let principal = Principal::built_in_worker(PoolId::builtin());
    let transport = InProcessWorker::new(engine.clone(), principal, shutdown.clone());
    Ok(Some(Executor::new(
        Arc::new(transport),
        Arc::clone(&followers.providers),
        followers.tools.clone(),
        ExecutorSettings {
            system_prompt: settings.agent_system_prompt.clone(),
            max_steps: settings.agent_max_steps,
            ask_user: settings.agent_ask_user,
            brand: settings.brand.clone(),
            locale: match settings.language {
                Language::En => Locale::En,
                Language::ZhCn => Locale::ZhCn,
            },
            ..ExecutorSettings::new(worker(engine, settings)?, followers.default_model.clone())
        },
    )))
}

fn worker(engine: &Engine, settings: &Settings) -> Outcome<WorkerSettings> {
    // The instance's id is new with each start, so that one incarnation of the name is all there ever is.
    let worker_id = format!("builtin@{}", engine.instance())
        .parse()
        .map_err(|error| Failure::failed(format!("the executor's name: {error}")))?;
    Ok(WorkerSettings {
        background_concurrency: Some(settings.run_execution_background_concurrency),
        renew_every: Some(Duration::from_millis(settings.renew_ms.into())),
        grace: Duration::from_millis(settings.grace_ms.into()),
        ..WorkerSettings::new(worker_id, 1, settings.run_execution_concurrency)
    })
}
