//! The catalogue as calls need it: secrets opened, in memory, as of one revision.
//!
//! Opened provider keys are for `tidegate-llm` only: whoever builds its registry passes them on unopened.

use std::{collections::BTreeMap, sync::Arc};

use secrecy::{ExposeSecret as _, SecretString};
use tidegate_model::{
    TenantId,
    api::{ProviderKind, SideEffectLevel, ToolMount, ToolTransportView},
    ids::CatalogName,
};
use tidegate_store::{
    catalog::{StoredModel, StoredProvider, StoredToolServer},
    secrets::SealedTable,
};

use super::place;
use crate::{Engine, Error, secrets::SecretError};

/// Providers, models and tool servers, opened.
#[derive(Debug, Default)]
pub struct ResolvedCatalog {
    /// The revision that this instance served when it read them; what is here is at least that new.
    pub revision: i64,
    /// Providers by name.
    pub providers: Vec<ResolvedProvider>,
    /// Models by name.
    pub models: Vec<ResolvedModel>,
    /// Tool servers by name.
    pub tool_servers: Vec<ResolvedToolServer>,
}

/// A provider.
#[derive(Debug)]
pub struct ResolvedProvider {
    /// Its name.
    pub name: CatalogName,
    /// How it is spoken to.
    pub kind: ProviderKind,
    /// Its address.
    pub base_url: String,
    /// Its key; `None` where it has none.
    pub api_key: Option<SecretString>,
    /// Why it cannot be used: its key does not open. Others are not affected (R1.8).
    pub unreadable: Option<String>,
    /// Calls at once per instance; the deployment's default unless given.
    pub max_in_flight: Option<u32>,
    /// Calls per minute per instance.
    pub rpm: Option<u32>,
    /// Waiting calls per class.
    pub max_queue: Option<u32>,
    /// The longest wait for a slot; 0 switches the foreground's bound off.
    pub queue_timeout_ms: Option<u64>,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedModel {
    /// The name that agents ask for.
    pub name: CatalogName,
    /// Who serves it.
    pub provider: CatalogName,
    /// The provider's own name.
    pub upstream_model: String,
    /// Whether it serves where no model is named.
    pub is_default: bool,
}

/// A tool server.
#[derive(Debug)]
pub struct ResolvedToolServer {
    /// Its name, the domain of its tools.
    pub name: CatalogName,
    /// How it is reached.
    pub transport: ToolTransportView,
    /// The values of its environment or headers.
    pub secrets: BTreeMap<String, SecretString>,
    /// Why it cannot be used: its secrets do not open.
    pub unreadable: Option<String>,
    /// The operator's mark of each tool; unmarked is `write`.
    pub tools: BTreeMap<String, SideEffectLevel>,
    /// Which tools are mounted, and as what.
    pub mount: ToolMount,
    /// Only these tenants; all where `None`.
    pub tenants: Option<Vec<TenantId>>,
    /// The longest a call may take.
    pub call_timeout_ms: u64,
    /// The longest a call may go without a sign of progress.
    pub idle_timeout_ms: u64,
}

impl ResolvedCatalog {
    /// The model that serves where none is named.
    pub fn default_model(&self) -> Option<&ResolvedModel> {
        self.models.iter().find(|model| model.is_default)
    }
}

impl ResolvedToolServer {
    /// Whether a tenant may use it.
    pub fn serves(&self, tenant: &TenantId) -> bool {
        self.tenants
            .as_ref()
            .is_none_or(|tenants| tenants.contains(tenant))
    }
}

/// The catalogue, from memory unless it changed.
pub async fn resolved(engine: &Engine) -> Result<Arc<ResolvedCatalog>, Error> {
    let load = || async { load(engine).await.map(Arc::new) };
    engine.platform().caches.catalog.get_or_load((), load).await
}

async fn load(engine: &Engine) -> Result<ResolvedCatalog, Error> {
    let revision = engine.platform().bus.served();
    let store = engine.store();
    let providers = store.list_providers().await?;
    let models = store.list_models().await?;
    let tool_servers = store.list_tool_servers().await?;
    Ok(ResolvedCatalog {
        revision,
        providers: providers.into_iter().map(|p| provider(engine, p)).collect(),
        models: models.into_iter().map(model).collect(),
        tool_servers: tool_servers
            .into_iter()
            .map(|s| tool_server(engine, s))
            .collect(),
    })
}

fn provider(engine: &Engine, stored: StoredProvider) -> ResolvedProvider {
    let keyring = &engine.platform().keyring;
    let opened = stored
        .secret
        .as_ref()
        .map(|sealed| keyring.open_text(place(SealedTable::Providers, &stored.name), sealed))
        .transpose();
    let (api_key, unreadable) = split(engine, opened, &stored.name);
    ResolvedProvider {
        name: stored.name,
        kind: stored.kind,
        base_url: stored.base_url,
        api_key: api_key.flatten(),
        unreadable,
        max_in_flight: stored.max_in_flight.map(i32::unsigned_abs),
        rpm: stored.rpm.map(i32::unsigned_abs),
        max_queue: stored.max_queue.map(i32::unsigned_abs),
        queue_timeout_ms: stored.queue_timeout_ms.map(i64::unsigned_abs),
    }
}

fn model(stored: StoredModel) -> ResolvedModel {
    ResolvedModel {
        name: stored.name,
        provider: stored.provider,
        upstream_model: stored.upstream_model,
        is_default: stored.is_default,
    }
}

fn tool_server(engine: &Engine, stored: StoredToolServer) -> ResolvedToolServer {
    let opened = stored
        .secret
        .as_ref()
        .map(|sealed| {
            let place = place(SealedTable::ToolServers, &stored.name);
            let open = engine.platform().keyring.open(place, sealed)?;
            let secrets: BTreeMap<String, String> = serde_json::from_slice(open.expose_secret())
                .map_err(|_| SecretError::unreadable(place))?;
            Ok(secrets
                .into_iter()
                .map(|(name, value)| (name, SecretString::from(value)))
                .collect())
        })
        .transpose();
    let (secrets, unreadable) = split(engine, opened, &stored.name);
    ResolvedToolServer {
        name: stored.name,
        transport: stored.transport,
        secrets: secrets.flatten().unwrap_or_default(),
        unreadable,
        tools: stored.tools,
        mount: stored.mount,
        tenants: stored.tenants,
        call_timeout_ms: stored.call_timeout_ms.unsigned_abs(),
        idle_timeout_ms: stored.idle_timeout_ms.unsigned_abs(),
    }
}

/// A secret that opened, or why not; said here, so that the log names the row. Others are not affected.
fn split<T>(
    engine: &Engine,
    opened: Result<T, SecretError>,
    name: &CatalogName,
) -> (Option<T>, Option<String>) {
    match opened {
        Ok(open) => (Some(open), None),
        Err(error) => {
            metrics::counter!("tidegate_unreadable_secrets_total").increment(1);
            let mut trouble = engine.platform().unreadable.lock();
            trouble.caused(&format!("{name}: {error}"));
            (None, Some(error.to_string()))
        }
    }
}
