//! What every handler can reach.

use std::sync::Arc;

use axum::extract::FromRef;
use bytes::Bytes;
use metrics_exporter_prometheus::{BuildError, PrometheusHandle};
use tidegate_engine::Engine;

use crate::{listen::Proxies, shutdown::Shutdown};

/// Shared by all requests of an instance; cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// The use cases.
    pub engine: Engine,
    /// Where the process is in its end.
    pub shutdown: Shutdown,
    /// Whose `X-Forwarded-For` is believed.
    pub proxies: Arc<Proxies>,
    /// What `/metrics` shows.
    pub metrics: PrometheusHandle,
    /// The OpenAPI document as it is sent.
    pub contract: Bytes,
}

impl AppState {
    /// The state of an instance. The metrics recorder is the process's and is installed by the first that asks.
    pub fn new(engine: Engine, shutdown: Shutdown) -> Result<Self, BuildError> {
        let proxies = Proxies::new(engine.settings().trusted_proxies.clone());
        // The document is a constant of the program; what cannot be written would fail every test of it.
        let contract = crate::openapi_text();
        Ok(Self {
            engine,
            shutdown,
            proxies: Arc::new(proxies),
            metrics: crate::metrics::install()?,
            contract: contract.into(),
        })
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppState")
            .field("shutdown", &self.shutdown)
            .finish_non_exhaustive()
    }
}

impl FromRef<AppState> for Engine {
    fn from_ref(state: &AppState) -> Self {
        state.engine.clone()
    }
}

impl FromRef<AppState> for Shutdown {
    fn from_ref(state: &AppState) -> Self {
        state.shutdown.clone()
    }
}

impl FromRef<AppState> for Arc<Proxies> {
    fn from_ref(state: &AppState) -> Self {
        Arc::clone(&state.proxies)
    }
}
