//! The listeners of an instance, from the first connection to the last.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, routing};
use axum_server::{
    Handle, Server,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use metrics_exporter_prometheus::BuildError;
use rustls::ServerConfig;
use tidegate_engine::Engine;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    local::{Bound, Local},
    stall::StallAcceptor,
    tls::TlsError,
};
use crate::{
    app, endpoints::probes, metrics, middleware::rest_of_body, shutdown::Shutdown, state::AppState,
};

/// A new connection must bring its first request's head within this time.
const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// Later heads may take this long, the idle time before them included: longer than what proxies keep a connection for,
/// so that it is they who close it and no request meets a closed one.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// All headers of a request together, in bytes; a key, a few ids and what proxies add fit many times.
const HEADERS_MAX_BYTES: usize = 32 << 10;
/// The most headers of a request.
const HEADERS_MAX: usize = 100;
/// Streams of one HTTP/2 connection at once.
const STREAMS_MAX: u32 = 256;
/// A peer that answers no HTTP/2 ping for this long is gone.
const PING_INTERVAL: Duration = Duration::from_secs(20);

const _: () = assert!(
    HEADERS_MAX_BYTES >= 8192,
    "hyper wants a buffer of at least 8 KiB"
);

/// A server whose sockets listen.
#[derive(Debug)]
pub struct ServerParts {
    state: AppState,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    operators: Option<TcpListener>,
}

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The certificate or key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address that cannot be listened on.
    #[error("{variable}: cannot listen on {address}; choose a free address of this machine")]
    Bind {
        /// The setting to change.
        variable: &'static str,
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The metrics recorder belongs to somebody else in this process.
    #[error("the metrics recorder cannot be installed")]
    Metrics(#[from] BuildError),
    /// A socket failed while serving.
    #[error("the listener failed")]
    Listener(#[source] io::Error),
}

impl ServerParts {
    /// Listens on what was taken: the API with or without TLS and, where set, the operator's listener with `/metrics`
    /// and the probes, which asks for no key.
    pub fn new(local: Local, engine: Engine, shutdown: Shutdown) -> Result<Self, ServeError> {
        let state = AppState::new(engine, shutdown)?;
        Ok(Self {
            state,
            listener: local.api.listen()?,
            tls: local.tls,
            operators: local.operators.map(Bound::listen).transpose()?,
        })
    }

    /// Where the API listens; the port is the real one where the settings say 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where the operator's listener is.
    pub fn metrics_address(&self) -> Option<io::Result<SocketAddr>> {
        self.operators.as_ref().map(TcpListener::local_addr)
    }
}

/// Serves until the shutdown reaches its end: after step 2 the listeners are closed and requests that have begun are
/// finished, at most for the grace of the settings; after step 3 it returns at once.
pub async fn serve(parts: ServerParts) -> Result<(), ServeError> {
    let ServerParts {
        state,
        listener,
        tls,
        operators,
    } = parts;
    let (engine, shutdown) = (state.engine.clone(), state.shutdown.clone());
    let grace = Duration::from_millis(engine.settings().grace_ms.into());
    let stall = StallAcceptor(Duration::from_millis(
        engine.settings().client_stall_ms.into(),
    ));
    let handle = Handle::<SocketAddr>::new();
    let mut listeners = JoinSet::new();
    if let Some(listener) = operators {
        let router = operator_router(state.clone());
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let server = bounded(Server::from_listener(listener))
            .acceptor(stall)
            .handle(handle.clone());
        listeners.spawn(async move { server.serve(service).await });
    }
    let upkeep = tokio::spawn(metrics::upkeep(
        state.metrics.clone(),
        shutdown.ending().clone(),
    ));
    let service = app::router(state).into_make_service_with_connect_info::<SocketAddr>();
    let server = bounded(Server::from_listener(listener)).handle(handle.clone());
    match tls {
        None => {
            let server = server.acceptor(stall);
            listeners.spawn(async move { server.serve(service).await })
        }
        Some(config) => {
            let tls = RustlsAcceptor::new(RustlsConfig::from_config(config));
            let server = server.acceptor(tls.acceptor(stall));
            listeners.spawn(async move { server.serve(service).await })
        }
    };
    let obey = tokio::spawn(async move {
        shutdown.draining().cancelled().await;
        engine.drain();
        shutdown.closing().cancelled().await;
        handle.graceful_shutdown(Some(grace));
        shutdown.ending().cancelled().await;
        handle.shutdown();
    });
    let mut result = Ok(());
    while let Some(joined) = listeners.join_next().await {
        if let Err(error) = joined.map_err(io::Error::other).and_then(|ended| ended) {
            result = Err(ServeError::Listener(error));
        }
    }
    obey.abort();
    upkeep.abort();
    result
}

/// Bounds what a connection may cost before it has said what it wants.
fn bounded<A>(mut server: Server<SocketAddr, A>) -> Server<SocketAddr, A> {
    let builder = server.http_builder();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(KEEP_ALIVE)
        .max_buf_size(HEADERS_MAX_BYTES)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEADERS_MAX_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_INTERVAL);
    server.first_request_timeout(FIRST_HEAD_TIMEOUT)
}

/// What the operator's own listener serves.
fn operator_router(state: AppState) -> Router {
    Router::new()
        .route("/metrics", routing::get(probes::metrics::metrics))
        .route("/livez", routing::get(probes::livez::livez))
        .route("/readyz", routing::get(probes::readyz::readyz))
        .layer(axum::middleware::from_fn(rest_of_body::discard))
        .with_state(state)
}
