//! The thread that owns the PostgreSQL process: starts it, watches it, revives it, stops it.
//!
//! A thread of its own rather than a task: a cluster is shared by test functions that each have
//! their own runtime, and its work is waiting for a child process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::sync::oneshot;

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::{AtPath, EmbeddedError};
use crate::initialise::SUPERUSER;
use crate::layout::Layout;
use crate::options::{Durability, Listen, Options};
use crate::strays;
use crate::tied::{self, Farewell, Tied};
use crate::wait;

/// How often an unexpected end is looked for.
const WATCH: Duration = Duration::from_millis(100);
/// How often progress of a start or a stop is looked for.
const POLL: Duration = Duration::from_millis(10);
const REVIVE_FIRST: Duration = Duration::from_millis(250);
const REVIVE_MOST: Duration = Duration::from_secs(10);
/// A server that lived this long starts again without the earlier delays.
const REVIVE_FORGET: Duration = Duration::from_mins(1);
/// How long a hard stop may take before `kill -9`.
const HARD_STOP: Duration = Duration::from_secs(5);

pub(crate) type Reply = oneshot::Sender<Result<(), EmbeddedError>>;

/// What the handle asks of the thread. A closed channel means stop.
#[derive(Debug)]
pub(crate) enum Order {
    /// Stop it if it runs, then start it.
    Restart(Reply),
    /// `kill -9` of the postmaster.
    Kill(Reply),
    /// Orderly stop; the thread ends.
    Stop(Reply),
}

/// The process and everything needed to start it again.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) layout: Layout,
    pub(crate) binaries: Binaries,
    pub(crate) account: Account,
    pub(crate) options: Options,
    pub(crate) socket_dir: PathBuf,
    pub(crate) port: u16,
    /// Process id for the handle to read, 0 while there is none.
    pub(crate) pid: Arc<AtomicU32>,
    child: Option<Tied>,
    started: Instant,
    revive: Revive,
}

/// When to try again after an unexpected end.
#[derive(Debug, Default)]
struct Revive {
    due: Option<Instant>,
    delay: Duration,
}

impl Supervisor {
    pub(crate) fn new(
        layout: Layout,
        binaries: Binaries,
        account: Account,
        options: Options,
        socket_dir: PathBuf,
        port: u16,
    ) -> Self {
        Self {
            layout,
            binaries,
            account,
            options,
            socket_dir,
            port,
            pid: Arc::default(),
            child: None,
            started: Instant::now(),
            revive: Revive::default(),
        }
    }

    /// Serves orders until told to stop or until the handle is gone.
    pub(crate) fn run(mut self, orders: &Receiver<Order>) {
        let reply = loop {
            match orders.recv_timeout(WATCH) {
                // A caller that no longer waits for its answer is no reason to fail.
                Ok(Order::Restart(reply)) => drop(reply.send(self.restart())),
                Ok(Order::Kill(reply)) => drop(reply.send(self.kill())),
                Ok(Order::Stop(reply)) => break Some(reply),
                Err(RecvTimeoutError::Timeout) => self.watch(),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        let mut result = self.stop();
        if result.is_ok() {
            result = self.layout.remove_outside_socket_dir();
        }
        if let Err(error) = &result {
            tracing::warn!(%error, "the private PostgreSQL did not stop cleanly");
        }
        // The lock goes before the answer, so that the directory is free when the caller hears.
        drop(self);
        if let Some(reply) = reply {
            let _ = reply.send(result);
        }
    }

    /// Starts the process and waits until it takes connections.
    pub(crate) fn start(&mut self) -> Result<(), EmbeddedError> {
        let data = self.layout.data();
        strays::clear(&data, &self.socket_dir)?;
        let log = self.layout.open_log()?;
        let log_copy = log.try_clone().at("open", self.layout.log())?;
        let mut command = tied::command(self.binaries.program("postgres"), Farewell::Interrupt);
        command.arg("-D").arg(&data);
        for (name, value) in self.settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // Variables such as PGPORT or PGOPTIONS of the caller's shell are not meant for this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
            .current_dir("/")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(log_copy));
        self.account.apply(&mut command);
        let child = tied::spawn(command, Farewell::Interrupt);
        let child = child.map_err(|source| EmbeddedError::System {
            what: "start postgres",
            source,
        })?;
        self.pid.store(child.id(), Ordering::Release);
        self.child = Some(child);
        self.started = Instant::now();
        self.revive.due = None;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), EmbeddedError> {
        let pid = self.pid.load(Ordering::Acquire);
        let patience = self.options.start_timeout;
        let ready = wait::until(patience, POLL, || {
            if let Some(status) = self.reap()? {
                return Err(self.not_started(format!("it ended with {status}")));
            }
            Ok(is_ready(&self.layout.data(), pid))
        })?;
        if ready {
            return Ok(());
        }
        let error = self.not_started(format!("not ready within {patience:?}"));
        self.stop()?;
        Err(error)
    }

    fn not_started(&self, why: String) -> EmbeddedError {
        EmbeddedError::NotStarted {
            why,
            log: self.layout.log(),
            tail: self.layout.log_tail(),
        }
    }

    /// Every setting on the command line, so that the files of an older cluster never decide.
    fn settings(&self) -> Vec<(String, String)> {
        let addresses = match self.options.listen {
            Listen::Socket => "",
            Listen::Tcp { .. } => "127.0.0.1",
        };
        let socket_dir = self.socket_dir.to_string_lossy().replace('"', "\"\"");
        let mut settings: Vec<(String, String)> = [
            ("listen_addresses", addresses.to_owned()),
            ("port", self.port.to_string()),
            ("unix_socket_directories", format!("\"{socket_dir}\"")),
            ("unix_socket_permissions", "0700".to_owned()),
            ("cluster_name", SUPERUSER.to_owned()),
            ("max_connections", "200".to_owned()),
            ("timezone", "UTC".to_owned()),
            ("log_timezone", "UTC".to_owned()),
            // The log names what failed, never the rows or statements, which hold users' content.
            ("log_error_verbosity", "terse".to_owned()),
            ("log_min_error_statement", "panic".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if self.options.durability == Durability::Throwaway {
            // Not `synchronous_commit`: without it a mere kill of PostgreSQL loses what it acknowledged.
            let off = ["fsync", "full_page_writes"];
            settings.extend(off.map(|name| (name.to_owned(), "off".to_owned())));
        }
        settings.extend(self.options.settings.iter().cloned());
        settings
    }

    fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.stop()?;
        self.start()
    }

    /// Fast shutdown, then the harder ones.
    pub(crate) fn stop(&mut self) -> Result<(), EmbeddedError> {
        self.revive.due = None;
        for (signal, patience) in [
            (Signal::SIGINT, self.options.stop_timeout),
            (Signal::SIGQUIT, HARD_STOP),
            (Signal::SIGKILL, HARD_STOP),
        ] {
            if self.child.is_none() {
                return Ok(());
            }
            self.signal(signal)?;
            self.wait_for_end(patience)?;
        }
        Ok(())
    }

    fn wait_for_end(&mut self, patience: Duration) -> Result<(), EmbeddedError> {
        wait::until(patience, POLL, || {
            self.reap()?;
            Ok(self.child.is_none())
        })
        .map(drop)
    }

    fn kill(&mut self) -> Result<(), EmbeddedError> {
        self.signal(Signal::SIGKILL)?;
        self.wait_for_end(HARD_STOP)?;
        self.plan_revival();
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<(), EmbeddedError> {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        child
            .signal(signal)
            .map_err(|source| EmbeddedError::System {
                what: "send a signal to postgres",
                source,
            })
    }

    /// Takes note of an end.
    fn reap(&mut self) -> Result<Option<std::process::ExitStatus>, EmbeddedError> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let status = child.try_wait().map_err(|source| EmbeddedError::System {
            what: "wait for postgres",
            source,
        })?;
        if status.is_some() {
            self.child = None;
            self.pid.store(0, Ordering::Release);
        }
        Ok(status)
    }

    /// Looks for an unexpected end, and starts again when it is time.
    fn watch(&mut self) {
        match self.reap() {
            Ok(None) => {}
            Ok(Some(status)) => {
                tracing::warn!(%status, "the private PostgreSQL ended unexpectedly");
                self.plan_revival();
            }
            Err(error) => tracing::warn!(%error, "cannot watch the private PostgreSQL"),
        }
        if self.revive.due.is_some_and(|due| due <= Instant::now()) {
            match self.start() {
                Ok(()) => tracing::info!("the private PostgreSQL runs again"),
                Err(error) => {
                    tracing::warn!(%error, "the private PostgreSQL does not start");
                    self.plan_revival();
                }
            }
        }
    }

    fn plan_revival(&mut self) {
        if !self.options.revive || self.child.is_some() {
            return;
        }
        self.revive.delay = if self.started.elapsed() > REVIVE_FORGET {
            REVIVE_FIRST
        } else {
            (self.revive.delay * 2).clamp(REVIVE_FIRST, REVIVE_MOST)
        };
        self.revive.due = Some(Instant::now() + self.revive.delay);
    }
}

/// PostgreSQL writes its state into line 8 of its lock file; `pg_ctl -w` reads the same.
fn is_ready(data: &Path, pid: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(data.join("postmaster.pid")) else {
        return false;
    };
    let mut lines = text.lines();
    let same = lines
        .next()
        .is_some_and(|line| line.trim() == pid.to_string());
    let state = lines.nth(6).map(str::trim);
    same && matches!(state, Some("ready" | "standby"))
}
