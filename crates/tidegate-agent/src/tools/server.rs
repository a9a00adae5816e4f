//! Keeps one tool server at hand: starts it or connects to it, learns its tools, notices its end, and tries again with a
//! growing pause.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, RwLock};
use rmcp::{
    Peer, RoleClient, ServiceExt,
    service::RunningService,
    transport::{IntoTransport, async_rw::AsyncRwTransport},
};
use tidegate_llm::Scrubber;
use tidegate_model::{
    api::{ToolServerPhase, ToolState},
    ids::CatalogName,
};
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    host::ToolLimits,
    http_api::HttpApi,
    live::{Callee, Live},
    mcp::{Listener, McpPeer, of_handshake},
    mounted::{described, judge},
    network::Network,
    process::ServerProcess,
    scrub,
    spec::{Endpoint, Program, ToolServerSpec, Transport},
    streamable,
};
use crate::{ambient, limits};

/// Where a tool server is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// It waits for one of the instance's processes.
    WaitingForProcess,
    /// It is being started or connected to for the first time.
    Starting,
    /// It can be called.
    Ready,
    /// It ended, could not be started, or does not answer; so it stays until it can be called again.
    Down {
        /// What happened, without secrets.
        reason: String,
        /// When it is tried again; never where only another configuration helps.
        retry_in: Option<Duration>,
    },
}

impl ServerState {
    /// The same in one word.
    pub fn phase(&self) -> ToolServerPhase {
        match self {
            Self::WaitingForProcess => ToolServerPhase::Waiting,
            Self::Starting => ToolServerPhase::Starting,
            Self::Ready => ToolServerPhase::Ready,
            Self::Down { .. } => ToolServerPhase::Down,
        }
    }
}

/// A tool server as it is shown to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServerStatus {
    /// The server.
    pub name: CatalogName,
    /// Where it is in its life.
    pub state: ServerState,
    /// Its tools as it listed them last, those that are not mounted left out.
    pub tools: Vec<ToolState>,
}

/// One server with the task that keeps it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: Arc<RwLock<ToolServerSpec>>,
    pub(super) scrubber: Scrubber,
    pub(super) state: watch::Receiver<ServerState>,
    pub(super) started: Instant,
    live: Arc<RwLock<Option<Arc<Live>>>>,
    remount: Arc<Notify>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    pub(super) fn start(spec: ToolServerSpec, surroundings: &Surroundings) -> Self {
        let (state, shown) = watch::channel(match spec.transport {
            Transport::Stdio(_) => ServerState::WaitingForProcess,
            _ => ServerState::Starting,
        });
        let stop = CancellationToken::new();
        let scrubber = scrub::scrubber(spec.secrets().iter());
        let spec = Arc::new(RwLock::new(spec));
        let live = Arc::new(RwLock::new(None));
        let remount = Arc::new(Notify::new());
        let keeper = Keeper {
            spec: Arc::clone(&spec),
            scrubber: scrubber.clone(),
            state,
            live: Arc::clone(&live),
            remount: Arc::clone(&remount),
            around: surroundings.clone(),
            stop: stop.clone(),
        };
        let task = Mutex::new(Some(tokio::spawn(keeper.run())));
        Self {
            spec,
            scrubber,
            state: shown,
            started: Instant::now(),
            live,
            remount,
            stop,
            task,
        }
    }

    /// The server, if it can be called now.
    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.live.read().clone()
    }

    /// Takes marks, tenants and time limits that need no new process.
    pub(super) fn update(&self, spec: ToolServerSpec) {
        let judged_anew = {
            let before = self.spec.read();
            before.tools != spec.tools || before.mount != spec.mount
        };
        *self.spec.write() = spec;
        if judged_anew {
            self.remount.notify_one();
        }
    }

    /// Tells it to stop; [`Server::stopped`] waits for it.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until its process is reaped.
    pub(super) async fn stopped(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ended = task.await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The keeper ends its process in an orderly way; without a runtime the process's guard kills it.
        self.stop.cancel();
    }
}

/// What all servers of a host share.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) processes: Arc<Semaphore>,
    pub(super) limits: ToolLimits,
    pub(super) network: Arc<Network>,
    /// Told whenever something changed that operators see.
    pub(super) changes: Arc<watch::Sender<u64>>,
}

/// The task behind a server.
struct Keeper {
    spec: Arc<RwLock<ToolServerSpec>>,
    scrubber: Scrubber,
    state: watch::Sender<ServerState>,
    live: Arc<RwLock<Option<Arc<Live>>>>,
    remount: Arc<Notify>,
    around: Surroundings,
    stop: CancellationToken,
}

/// A connection that is up, and what keeps it so.
type Mounted = (RunningService<RoleClient, Listener>, Arc<Live>);

impl Keeper {
    async fn run(self) {
        let mut ends = 0;
        loop {
            let transport = self.spec.read().transport.clone();
            let started = Instant::now();
            let reason = match transport {
                Transport::Stdio(program) => self.live_as_process(&program).await,
                Transport::StreamableHttp(endpoint) => self.live_behind(&endpoint).await,
                Transport::Http { base, tools } => {
                    let network = Arc::clone(&self.around.network);
                    match HttpApi::new(network, &base, tools) {
                        Ok(api) => self.live_as_api(Arc::new(api)).await,
                        Err(reason) => return self.give_up(reason),
                    }
                }
                Transport::Unusable(reason) => return self.give_up(reason),
            };
            if self.stop.is_cancelled() {
                return;
            }
            ends = if started.elapsed() >= limits::RESTART_FORGIVEN {
                1
            } else {
                ends + 1
            };
            let pause = pause(self.around.limits.restart_base, ends, ambient::unit());
            let server = self.spec.read().name.clone();
            tracing::warn!(%server, reason, ?pause, "a tool server ended; it is tried again after a pause");
            self.enter(ServerState::Down {
                reason,
                retry_in: Some(pause),
            });
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    fn enter(&self, state: ServerState) {
        self.state.send_replace(state);
        self.tell();
    }

    fn tell(&self) {
        self.around.changes.send_modify(|changes| *changes += 1);
    }

    fn offer(&self, live: Option<Arc<Live>>) {
        *self.live.write() = live;
        self.tell();
    }

    /// Nothing but another configuration can help.
    fn give_up(&self, reason: String) {
        let server = self.spec.read().name.clone();
        tracing::warn!(%server, reason, "a tool server cannot be used");
        self.enter(ServerState::Down {
            reason,
            retry_in: None,
        });
    }

    fn count(&self, outcome: &'static str) {
        let server = self.spec.read().name.as_str().to_owned();
        metrics::counter!("tidegate_tool_server_starts_total", "server" => server, "outcome" => outcome)
            .increment(1);
    }

    /// One life of a server's process, once there is room for it; returns how it ended. The process is reaped by then.
    async fn live_as_process(&self, program: &Program) -> String {
        let permit = tokio::select! {
            permit = self.around.processes.acquire() => permit,
            () = self.stop.cancelled() => return "stopped".to_owned(),
        };
        let Ok(_permit) = permit else {
            return "stopped".to_owned();
        };
        if *self.state.borrow() == ServerState::WaitingForProcess {
            self.enter(ServerState::Starting);
        }
        let (mut process, stdin, stdout) = match ServerProcess::start(program) {
            Ok(started) => started,
            Err(error) => {
                self.count("not_started");
                return format!(
                    "cannot start {:?}: {error}; check the command of the server",
                    program.command
                );
            }
        };
        let listener = Listener::default();
        let transport = AsyncRwTransport::<RoleClient, _, _>::new(stdout, stdin)
            .with_max_line_length(limits::LINE_MAX_BYTES);
        match self.mounted(transport, &listener).await {
            Ok(mounted) => {
                let reason = self.serve(mounted, &listener).await;
                let status = process.end().await;
                format!("{reason} ({status})")
            }
            Err(reason) => {
                let status = process.end().await;
                let said = process.last_line(&self.scrubber).await;
                let said = said
                    .map(|line| format!("; it said: {line}"))
                    .unwrap_or_default();
                format!("{reason} ({status}{said}); check the command and arguments of the server")
            }
        }
    }

    /// One connection to a server behind a URL; returns how it ended.
    async fn live_behind(&self, endpoint: &Endpoint) -> String {
        let listener = Listener::default();
        let changed = Arc::clone(&listener.changed);
        let transport = match streamable::transport(&self.around.network, endpoint, changed) {
            Ok(transport) => transport,
            Err(reason) => {
                self.count("not_started");
                return reason;
            }
        };
        match self.mounted(transport, &listener).await {
            Ok(mounted) => self.serve(mounted, &listener).await,
            Err(reason) => format!("{reason}; check the URL and the headers of the server"),
        }
    }

    /// An API that is described needs nothing to be called; whether it answers, calls find out.
    async fn live_as_api(&self, api: Arc<HttpApi>) -> String {
        self.count("mounted");
        loop {
            let tools = {
                let spec = self.spec.read();
                described(&spec, api.tools())
            };
            self.offer(Some(Live::new(Callee::Http(Arc::clone(&api)), tools)));
            self.enter(ServerState::Ready);
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = self.remount.notified() => {}
            }
        }
        self.offer(None);
        "stopped".to_owned()
    }

    /// The handshake and the list of tools, within their time. The error has no secrets.
    async fn mounted<T, E, A>(&self, transport: T, listener: &Listener) -> Result<Mounted, String>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let within = self.around.limits.mount_timeout;
        let mounted = tokio::select! {
            mounted = timeout(within, self.mount(transport, listener)) => mounted.unwrap_or_else(|_| {
                Err(format!("no handshake and list of tools within {} s", within.as_secs_f64()))
            }),
            () = self.stop.cancelled() => Err("stopped".to_owned()),
        };
        self.count(if mounted.is_ok() {
            "mounted"
        } else {
            "not_mounted"
        });
        mounted.map_err(|reason| {
            let reason = self.scrubber.clean(&reason).replace(char::is_control, " ");
            reason.chars().take(300).collect()
        })
    }

    async fn mount<T, E, A>(&self, transport: T, listener: &Listener) -> Result<Mounted, String>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let service = listener.clone().serve(transport).await;
        let service =
            service.map_err(|error| format!("the handshake failed: {}", of_handshake(&error)))?;
        let live = self.list(service.peer().clone(), listener).await?;
        Ok((service, live))
    }

    async fn list(&self, peer: Peer<RoleClient>, listener: &Listener) -> Result<Arc<Live>, String> {
        let tools = peer.list_all_tools().await;
        let tools = tools.map_err(|_| "it did not list its tools".to_owned())?;
        let tools = judge(&self.spec.read(), tools);
        let callee = Callee::Mcp(McpPeer::new(peer, listener.clone()));
        Ok(Live::new(callee, tools))
    }

    /// Serves until the server ends, misbehaves or should stop.
    async fn serve(&self, (service, live): Mounted, listener: &Listener) -> String {
        let mut current = Arc::clone(&live);
        self.offer(Some(live));
        self.enter(ServerState::Ready);
        let peer = service.peer().clone();
        let cancel = service.cancellation_token();
        let over = service.waiting();
        tokio::pin!(over);
        let mut ended = false;
        let reason = loop {
            tokio::select! {
                _ = &mut over => {
                    ended = true;
                    break "it ended".to_owned();
                }
                () = self.stop.cancelled() => break "stopped".to_owned(),
                () = current.broken.notified() => {
                    break format!("{} calls in a row came to no answer", limits::STRIKES);
                }
                () = listener.changed.notified() => {}
                () = self.remount.notified() => {}
            }
            let listed = self.list(peer.clone(), listener);
            match timeout(self.around.limits.mount_timeout, listed).await {
                Ok(Ok(listed)) => {
                    current = Arc::clone(&listed);
                    self.offer(Some(listed));
                }
                Ok(Err(reason)) => break reason,
                Err(_) => break "it did not list its tools in time".to_owned(),
            }
        };
        self.offer(None);
        if !ended {
            // Closes the server's input, or its session.
            cancel.cancel();
            let _closed = timeout(limits::LEAVE_GRACE, over).await;
        }
        reason
    }
}

/// The pause after so many ends in a row: doubles up to a minute; at least half of it is certain.
fn pause(base: Duration, ends: u32, unit: f64) -> Duration {
    let doublings = ends.saturating_sub(1).min(16);
    let most = base.saturating_mul(1 << doublings).min(limits::RESTART_MAX);
    most.mul_f64(0.5 + unit.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O-26: restarts back off to a minute, and stay spread there.
    #[test]
    fn pauses_grow_to_a_minute() {
        assert_eq!(pause(limits::RESTART_BASE, 1, 1.0), Duration::from_secs(1));
        assert_eq!(
            pause(limits::RESTART_BASE, 1, 0.0),
            Duration::from_millis(500)
        );
        assert_eq!(pause(limits::RESTART_BASE, 40, 1.0), Duration::from_mins(1));
        assert_eq!(
            pause(limits::RESTART_BASE, 40, 0.0),
            Duration::from_secs(30)
        );
    }
}
