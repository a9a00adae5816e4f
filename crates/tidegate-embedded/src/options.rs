//! What a caller may choose about its cluster.

use std::path::PathBuf;
use std::time::Duration;

/// Where the server listens. The private socket is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listen {
    /// Only the unix socket in the cluster's own directory.
    #[default]
    Socket,
    /// Loopback TCP as well, with a password; `None` takes a free port.
    Tcp {
        /// A fixed port, or any free one.
        port: Option<u16>,
    },
}

/// Whether acknowledged writes survive a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// PostgreSQL's own guarantees.
    #[default]
    Safe,
    /// No `fsync`. Survives a crash of PostgreSQL, not one of the machine: for tests only.
    Throwaway,
}

/// The cluster that a standby follows.
#[derive(Clone)]
pub(crate) struct Primary {
    pub(crate) socket_dir: PathBuf,
    pub(crate) port: u16,
    pub(crate) password: String,
}

impl std::fmt::Debug for Primary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Primary({})", self.socket_dir.display())
    }
}

/// How to start a cluster. [`Options::new`] gives what `tidegate dev` wants.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster's own directory; made where it is missing. Nothing else may live in it.
    pub dir: PathBuf,
    /// Throw the existing data away first.
    pub fresh: bool,
    /// A directory with `postgres` and `initdb`, before every other place.
    pub bin_dir: Option<PathBuf>,
    /// Root only: the account to drop to instead of the one chosen by [`crate::Account`].
    pub run_as: Option<String>,
    /// Socket alone, or TCP too.
    pub listen: Listen,
    /// Safe unless this is a test.
    pub durability: Durability,
    /// Server settings on top of ours (`max_connections`, …), later ones win.
    pub settings: Vec<(String, String)>,
    /// Made by [`crate::Cluster::standby_options`].
    pub(crate) standby_of: Option<Primary>,
    /// Start PostgreSQL again when it ends without being asked to.
    pub revive: bool,
    /// How long a start may take, crash recovery included.
    pub start_timeout: Duration,
    /// How long an orderly stop may take before it becomes a hard one.
    pub stop_timeout: Duration,
    /// How long to wait for another owner to let go of the directory.
    pub lock_timeout: Duration,
}

impl Options {
    /// A durable cluster in `dir`, on its socket, revived when it crashes.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            fresh: false,
            bin_dir: None,
            run_as: None,
            listen: Listen::Socket,
            durability: Durability::Safe,
            settings: Vec::new(),
            standby_of: None,
            revive: true,
            start_timeout: Duration::from_mins(1),
            stop_timeout: Duration::from_secs(20),
            lock_timeout: Duration::from_secs(3),
        }
    }

    /// A cluster for tests: fast, not durable, not revived.
    pub fn throwaway(dir: impl Into<PathBuf>) -> Self {
        Self {
            durability: Durability::Throwaway,
            revive: false,
            ..Self::new(dir)
        }
    }

    /// Adds a server setting.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }
}
