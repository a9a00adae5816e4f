//! Keeps one tool server running: starts it, learns its tools, notices its end, starts it again with a growing pause.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use rmcp::{
    ClientHandler, Peer, RoleClient, ServiceExt,
    model::{ClientConfig, Implementation},
    service::{NotificationContext, RunningService},
    transport::async_rw::AsyncRwTransport,
};
use tidegate_model::ids::CatalogName;
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    host::ToolLimits,
    mounted::{ToolStatus, Tools, judge},
    process::ServerProcess,
    scrub::Scrubber,
    spec::ToolServerSpec,
};
use crate::{ambient, limits};

/// Where a tool server is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// It waits for one of the instance's processes.
    WaitingForProcess,
    /// It is being started; the number of earlier ends in a row.
    Starting(u32),
    /// It can be called.
    Ready,
    /// It ended or could not be started.
    Down {
        /// What happened, without secrets.
        reason: String,
        /// When it is started again.
        retry_in: Duration,
    },
}

/// A tool server as it is shown to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServerStatus {
    /// The server.
    pub name: CatalogName,
    /// Where it is in its life.
    pub state: ServerState,
    /// Its tools as it listed them last.
    pub tools: Vec<ToolStatus>,
}

/// One server with the task that keeps it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: Arc<RwLock<ToolServerSpec>>,
    pub(super) scrubber: Scrubber,
    pub(super) state: watch::Receiver<ServerState>,
    live: Arc<RwLock<Option<Arc<Live>>>>,
    remount: Arc<Notify>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// A server that can be called.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) peer: Peer<RoleClient>,
    pub(super) tools: Tools,
    strikes: AtomicU32,
    broken: Notify,
}

impl Live {
    /// A call ended in time.
    pub(super) fn answered(&self) {
        self.strikes.store(0, Ordering::Relaxed);
    }

    /// A call did not; a server that keeps doing so is started anew.
    pub(super) fn timed_out(&self) {
        if self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= limits::STRIKES {
            self.broken.notify_one();
        }
    }
}

impl Server {
    pub(super) fn start(
        spec: ToolServerSpec,
        processes: Arc<Semaphore>,
        limits: ToolLimits,
    ) -> Self {
        let (state, shown) = watch::channel(ServerState::WaitingForProcess);
        let stop = CancellationToken::new();
        let scrubber = Scrubber::new(spec.env.values());
        let spec = Arc::new(RwLock::new(spec));
        let live = Arc::new(RwLock::new(None));
        let remount = Arc::new(Notify::new());
        let keeper = Keeper {
            spec: Arc::clone(&spec),
            scrubber: scrubber.clone(),
            state,
            live: Arc::clone(&live),
            remount: Arc::clone(&remount),
            processes,
            limits,
            stop: stop.clone(),
        };
        let task = Mutex::new(Some(tokio::spawn(keeper.run())));
        Self {
            spec,
            scrubber,
            state: shown,
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
        let marks_changed = self.spec.read().tools != spec.tools;
        *self.spec.write() = spec;
        if marks_changed {
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

/// The task behind a server.
struct Keeper {
    spec: Arc<RwLock<ToolServerSpec>>,
    scrubber: Scrubber,
    state: watch::Sender<ServerState>,
    live: Arc<RwLock<Option<Arc<Live>>>>,
    remount: Arc<Notify>,
    processes: Arc<Semaphore>,
    limits: ToolLimits,
    stop: CancellationToken,
}

impl Keeper {
    async fn run(self) {
        let mut ends = 0;
        loop {
            self.state.send_replace(ServerState::WaitingForProcess);
            let permit = tokio::select! {
                permit = self.processes.acquire() => permit,
                () = self.stop.cancelled() => return,
            };
            let Ok(permit) = permit else { return };
            self.state.send_replace(ServerState::Starting(ends));
            let started = Instant::now();
            let reason = self.live_once().await;
            drop(permit);
            if self.stop.is_cancelled() {
                return;
            }
            ends = if started.elapsed() >= limits::RESTART_FORGIVEN {
                1
            } else {
                ends + 1
            };
            let pause = pause(self.limits.restart_base, ends, ambient::unit());
            let server = self.spec.read().name.clone();
            tracing::warn!(%server, reason, ?pause, "a tool server ended; it is started again after a pause");
            self.state.send_replace(ServerState::Down {
                reason,
                retry_in: pause,
            });
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// One life of the server's process; returns how it ended. The process is reaped by then.
    async fn live_once(&self) -> String {
        let spec = self.spec.read().clone();
        let label = spec.name.as_str().to_owned();
        let count = |outcome: &'static str| {
            metrics::counter!("tidegate_tool_server_starts_total", "server" => label.clone(), "outcome" => outcome).increment(1);
        };
        let (mut process, stdin, stdout) = match ServerProcess::start(&spec) {
            Ok(started) => started,
            Err(error) => {
                count("not_started");
                return format!(
                    "cannot start {:?}: {error}; check the command of the server",
                    spec.command
                );
            }
        };
        let changed = Arc::new(Notify::new());
        let mount = self.mount(stdin, stdout, Arc::clone(&changed));
        let mounted = tokio::select! {
            mounted = timeout(self.limits.mount_timeout, mount) => mounted.unwrap_or_else(|_| {
                Err(format!("no handshake and list of tools within {} s", self.limits.mount_timeout.as_secs_f64()))
            }),
            () = self.stop.cancelled() => Err("stopped".to_owned()),
        };
        match mounted {
            Ok((service, live)) => {
                count("mounted");
                let reason = self.serve(service, live, &changed).await;
                let status = process.end().await;
                format!("{reason} ({status})")
            }
            Err(reason) => {
                count("not_mounted");
                let status = process.end().await;
                let said = process.last_line(&self.scrubber).await;
                let said = said
                    .map(|line| format!("; it said: {line}"))
                    .unwrap_or_default();
                format!(
                    "{} ({status}{said}); check the command and arguments of the server",
                    self.scrubber.clean(&reason)
                )
            }
        }
    }

    async fn mount(
        &self,
        stdin: tokio::process::ChildStdin,
        stdout: tokio::process::ChildStdout,
        changed: Arc<Notify>,
    ) -> Result<(RunningService<RoleClient, Listener>, Arc<Live>), String> {
        let transport = AsyncRwTransport::<RoleClient, _, _>::new(stdout, stdin)
            .with_max_line_length(limits::LINE_MAX_BYTES);
        let service = Listener { changed }.serve(transport).await;
        let service =
            service.map_err(|_| "it ended or misbehaved during the handshake".to_owned())?;
        let live = self.list(service.peer().clone()).await?;
        Ok((service, live))
    }

    async fn list(&self, peer: Peer<RoleClient>) -> Result<Arc<Live>, String> {
        let tools = peer.list_all_tools().await;
        let tools = tools.map_err(|_| "it did not list its tools".to_owned())?;
        let tools = judge(&self.spec.read(), tools);
        Ok(Arc::new(Live {
            peer,
            tools,
            strikes: AtomicU32::new(0),
            broken: Notify::new(),
        }))
    }

    /// Serves until the server ends, misbehaves or should stop.
    async fn serve(
        &self,
        service: RunningService<RoleClient, Listener>,
        live: Arc<Live>,
        changed: &Notify,
    ) -> String {
        let mut current = Arc::clone(&live);
        *self.live.write() = Some(live);
        self.state.send_replace(ServerState::Ready);
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
                    break format!("{} calls in a row did not end in time", limits::STRIKES);
                }
                () = changed.notified() => {}
                () = self.remount.notified() => {}
            }
            match timeout(self.limits.mount_timeout, self.list(peer.clone())).await {
                Ok(Ok(listed)) => {
                    current = Arc::clone(&listed);
                    *self.live.write() = Some(listed);
                }
                Ok(Err(reason)) => break reason,
                Err(_) => break "it did not list its tools in time".to_owned(),
            }
        };
        *self.live.write() = None;
        if !ended {
            // Closes the server's input.
            cancel.cancel();
            let _closed = timeout(limits::LEAVE_GRACE, over).await;
        }
        reason
    }
}

/// What the server may tell us.
#[derive(Debug)]
struct Listener {
    changed: Arc<Notify>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            rmcp::model::ClientCapabilities::default(),
            Implementation::new("tidegate", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
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
