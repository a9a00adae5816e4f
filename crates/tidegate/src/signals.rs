//! SIGINT and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Both signals as one stream of requests to end.
#[derive(Debug)]
pub struct Stops {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    /// A request from within this process; counts once.
    inside: Option<CancellationToken>,
}

impl Stops {
    /// Listens from now on. A signal that cannot be listened to keeps its usual effect.
    pub fn listen() -> Self {
        Self {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
            inside: None,
        }
    }

    /// Takes a request from within this process as well.
    #[must_use]
    pub fn or(self, inside: CancellationToken) -> Self {
        Self {
            inside: Some(inside),
            ..self
        }
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            () = received(&mut self.interrupt) => {}
            () = received(&mut self.terminate) => {}
            () = asked(&mut self.inside) => {}
        }
    }
}

async fn asked(inside: &mut Option<CancellationToken>) {
    match inside {
        Some(token) => {
            token.cancelled().await;
            *inside = None;
        }
        None => std::future::pending().await,
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Waits for the first request to end.
pub async fn stop() {
    Stops::listen().next().await;
}
