//! Keeps model providers and tool servers of this process as the catalogue says, revision by revision.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use tidegate_agent::{DefaultModel, ToolHost};
use tidegate_engine::{
    Engine,
    catalog::resolved::{self, ResolvedCatalog, ResolvedProvider},
    settings::Settings,
    trouble::Trouble,
};
use tidegate_llm::{
    Catalogue, LimiterSettings, ModelRoute, ProviderConfig, Providers, UnusableProvider,
};
use tidegate_model::Code;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::tools;

/// How long until the catalogue is read again after it could not be read.
const AGAIN: Duration = Duration::from_secs(1);

/// What follows the catalogue.
#[derive(Debug, Clone)]
pub struct Followers {
    /// Model providers.
    pub providers: Arc<Providers>,
    /// Tool servers.
    pub tools: ToolHost,
    /// The model where none is named.
    pub default_model: DefaultModel,
}

impl Followers {
    /// Follows until stopped; `applied` is told each revision that is in force.
    pub async fn follow(
        self,
        engine: Engine,
        applied: watch::Sender<i64>,
        stop: CancellationToken,
    ) {
        let mut revisions = engine.platform().bus().subscribe();
        let mut trouble = Trouble::new("reading the catalogue (the one at hand stays in force)");
        loop {
            // Before the catalogue: what is read then is at least that new.
            let revision = *revisions.borrow_and_update();
            let settled = match resolved::resolved(&engine).await {
                Ok(catalogue) => {
                    self.apply(engine.settings(), &catalogue);
                    applied.send_replace(revision);
                    trouble.over();
                    true
                }
                Err(error) => {
                    trouble.met(&error);
                    false
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = revisions.changed(), if settled => if changed.is_err() { return },
                () = tokio::time::sleep(AGAIN), if !settled => {}
            }
        }
    }

    fn apply(&self, settings: &Settings, catalogue: &ResolvedCatalog) {
        for unusable in self.providers.replace(for_models(settings, catalogue)) {
            tracing::warn!(provider = %unusable.id, reason = unusable.reason, "a model provider cannot be used");
        }
        self.default_model
            .set(catalogue.default_model().map(|model| model.name.clone()));
        self.tools.configure(tools::specs(catalogue));
    }
}

fn for_models(settings: &Settings, catalogue: &ResolvedCatalog) -> Catalogue {
    let mut built = Catalogue::default();
    for provider in &catalogue.providers {
        match &provider.unreadable {
            Some(reason) => built.unusable.push(UnusableProvider {
                id: provider.name.clone(),
                reason: reason.clone(),
                code: Code::SecretUnreadable,
            }),
            None => built.providers.push(ProviderConfig {
                api_key: provider.api_key.clone(),
                ca_file: settings.llm_extra_ca.clone(),
                limits: limits(settings, provider),
                ..ProviderConfig::new(provider.name.clone(), provider.base_url.clone())
            }),
        }
    }
    built.models = catalogue
        .models
        .iter()
        .map(|model| ModelRoute {
            alias: model.name.clone(),
            provider: model.provider.clone(),
            model: model.upstream_model.clone(),
        })
        .collect();
    built
}

/// The provider's own limits, else the deployment's (R13.1).
fn limits(settings: &Settings, provider: &ResolvedProvider) -> LimiterSettings {
    let default = LimiterSettings::default();
    let in_flight = provider
        .max_in_flight
        .unwrap_or(settings.llm_provider_max_in_flight);
    let timeout_ms = provider
        .queue_timeout_ms
        .unwrap_or_else(|| settings.llm_provider_queue_timeout_ms.into());
    LimiterSettings {
        max_in_flight: NonZeroU32::new(in_flight).unwrap_or(default.max_in_flight),
        rpm: provider
            .rpm
            .or(settings.llm_provider_rpm)
            .and_then(NonZeroU32::new),
        max_queue: provider
            .max_queue
            .unwrap_or(settings.llm_provider_max_queue),
        queue_timeout: (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms)),
    }
}
