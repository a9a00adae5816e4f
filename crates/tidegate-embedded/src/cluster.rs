//! The handle: start a cluster, get its addresses, make databases, stop it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tokio::sync::oneshot;

use crate::account::Account;
use crate::binaries::{Binaries, Search};
use crate::error::{AtPath, EmbeddedError};
use crate::initialise::{self, SUPERUSER};
use crate::layout::Layout;
use crate::options::{Listen, Options, Primary};
use crate::strays;
use crate::supervisor::{Order, Reply, Supervisor};

/// Port in the socket's name where there is no TCP; the directory is private, so any would do.
const SOCKET_PORT: u16 = 5432;
/// Another process may take a free port before PostgreSQL does.
const PORT_ATTEMPTS: u32 = 5;

/// A running private PostgreSQL. Dropping it stops the server in the background; [`Self::stop`]
/// waits for that.
#[derive(Debug)]
pub struct Cluster {
    orders: mpsc::Sender<Order>,
    pid: Arc<AtomicU32>,
    facts: Facts,
}

/// What does not change over the life of a handle.
#[derive(Clone)]
struct Facts {
    root: PathBuf,
    socket_dir: PathBuf,
    port: u16,
    tcp: bool,
    password: String,
    binaries: Binaries,
    account: Account,
}

impl std::fmt::Debug for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts")
            .field("root", &self.root)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Makes the cluster where there is none, starts it, and returns once it takes connections.
    ///
    /// A caller that stops waiting stops the server.
    pub async fn start(options: Options) -> Result<Self, EmbeddedError> {
        let (orders, inbox) = mpsc::channel();
        let (tell, told) = oneshot::channel();
        std::thread::Builder::new()
            .name("tidegate-postgres".into())
            .spawn(move || match launch(options) {
                Ok((supervisor, facts)) => {
                    let pid = Arc::clone(&supervisor.pid);
                    // If nobody listens any more, the order channel is closed too and `run` stops.
                    let _ = tell.send(Ok((pid, facts)));
                    supervisor.run(&inbox);
                }
                Err(error) => drop(tell.send(Err(error))),
            })
            .map_err(|source| EmbeddedError::System {
                what: "start a thread for PostgreSQL",
                source,
            })?;
        let (pid, facts) = told.await.map_err(|_| EmbeddedError::Stopped)??;
        Ok(Self { orders, pid, facts })
    }

    /// Address of a database: on the socket, or on loopback TCP where that was asked for. The
    /// latter holds the password.
    pub fn url(&self, database: &str) -> String {
        if !self.facts.tcp {
            return self.socket_url(database);
        }
        let Facts { port, password, .. } = &self.facts;
        let database = percent_encode(database);
        format!("postgres://{SUPERUSER}:{password}@127.0.0.1:{port}/{database}")
    }

    /// Address of a database on the private socket.
    pub fn socket_url(&self, database: &str) -> String {
        let port = self.facts.port;
        let dir = percent_encode(&self.facts.socket_dir.to_string_lossy());
        let database = percent_encode(database);
        format!("postgres://{SUPERUSER}@localhost:{port}/{database}?host={dir}")
    }

    /// Makes a database. `false`: it was there already.
    pub async fn create_database(&self, name: &str) -> Result<bool, EmbeddedError> {
        let done = self
            .admin(
                "create a database",
                format!("CREATE DATABASE {}", quoted(name)?),
            )
            .await;
        match done {
            Err(error) if has_code(&error, "42P04") => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Makes a database as a copy of `template`, which nobody may be connected to.
    pub async fn clone_database(&self, template: &str, name: &str) -> Result<(), EmbeddedError> {
        let sql = format!(
            "CREATE DATABASE {} TEMPLATE {}",
            quoted(name)?,
            quoted(template)?
        );
        self.admin("copy a database", sql).await
    }

    /// Drops a database if it is there, and the sessions in it.
    pub async fn drop_database(&self, name: &str) -> Result<(), EmbeddedError> {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quoted(name)?);
        self.admin("drop a database", sql).await
    }

    /// Options for a hot standby in `dir` that follows this cluster, for tests of promotion. Both
    /// must run under the same account.
    pub fn standby_options(&self, dir: impl Into<PathBuf>) -> Options {
        let mut options = Options::throwaway(dir);
        options.standby_of = Some(Primary {
            socket_dir: self.facts.socket_dir.clone(),
            port: self.facts.port,
            password: self.facts.password.clone(),
        });
        options
    }

    /// Makes a standby a primary of its own, on a new timeline, and waits until it is.
    pub async fn promote(&self) -> Result<(), EmbeddedError> {
        self.admin("promote a standby", "SELECT pg_promote()".into())
            .await
    }

    async fn admin(&self, what: &'static str, sql: String) -> Result<(), EmbeddedError> {
        let failed = |source| EmbeddedError::Sql { what, source };
        let options = PgConnectOptions::new_without_pgpass()
            .socket(&self.facts.socket_dir)
            .port(self.facts.port)
            .username(SUPERUSER)
            .database("postgres")
            .disable_statement_logging();
        let mut connection = PgConnection::connect_with(&options).await.map_err(failed)?;
        // Names cannot be parameters of these statements; `quoted` has let only safe ones pass.
        let done = sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await;
        connection.close().await.map_err(failed)?;
        done.map(drop).map_err(failed)
    }

    /// Stops and starts the server; sessions end. Starts it as well where it is down.
    pub async fn restart(&self) -> Result<(), EmbeddedError> {
        self.order(Order::Restart).await
    }

    /// `kill -9` of the server, for tests. It comes back by itself only with `revive`.
    pub async fn kill9(&self) -> Result<(), EmbeddedError> {
        self.order(Order::Kill).await
    }

    /// Stops the server and gives the directory back. Stopping twice is fine.
    pub async fn stop(&self) -> Result<(), EmbeddedError> {
        match self.order(Order::Stop).await {
            Err(EmbeddedError::Stopped) => Ok(()),
            done => done,
        }
    }

    async fn order(&self, order: impl FnOnce(Reply) -> Order) -> Result<(), EmbeddedError> {
        let (reply, answer) = oneshot::channel();
        self.orders
            .send(order(reply))
            .map_err(|_| EmbeddedError::Stopped)?;
        answer.await.map_err(|_| EmbeddedError::Stopped)?
    }

    /// Process id of the server, while there is one.
    pub fn pid(&self) -> Option<u32> {
        match self.pid.load(Ordering::Acquire) {
            0 => None,
            pid => Some(pid),
        }
    }

    /// The programs it runs.
    pub fn binaries(&self) -> &Binaries {
        &self.facts.binaries
    }

    /// The server's version, such as `15.18 (Debian 15.18-0+deb12u1)`.
    pub fn version(&self) -> &str {
        self.facts.binaries.version()
    }

    /// The account it runs under.
    pub fn account(&self) -> &Account {
        &self.facts.account
    }

    /// The cluster's directory.
    pub fn dir(&self) -> &Path {
        &self.facts.root
    }

    /// The directory of the socket.
    pub fn socket_dir(&self) -> &Path {
        &self.facts.socket_dir
    }

    /// Port on loopback, or in the socket's name.
    pub fn port(&self) -> u16 {
        self.facts.port
    }
}

/// Everything up to a server that takes connections. Blocks.
fn launch(options: Options) -> Result<(Supervisor, Facts), EmbeddedError> {
    let layout = Layout::open(&options.dir, options.lock_timeout)?;
    if options.fresh {
        strays::clear(&layout.data(), &layout.root().join("run"))?;
        layout.wipe(true)?;
    }
    let data_major = layout.data_major()?;
    let data = layout.data();
    let account = Account::choose(
        data_major.map(|_| data.as_path()),
        options.run_as.as_deref(),
    )?;
    if let Some(blocked) = account.blocked_at(layout.root()) {
        return Err(EmbeddedError::Access {
            path: blocked.to_owned(),
            reason: format!(
                "PostgreSQL cannot run as root, and account {} cannot enter this directory; \
                 give a directory below /var/lib with --data-dir, or run `chmod o+x` on this one",
                account.name
            ),
        });
    }
    let binaries = Search::from_env(options.bin_dir.clone()).find(&account, data_major)?;
    initialise::ensure(&layout, &binaries, &account, &options)?;
    let password = std::fs::read_to_string(layout.password()).at("read", layout.password())?;

    let (fixed, attempts) = match options.listen {
        Listen::Socket => (Some(SOCKET_PORT), 1),
        Listen::Tcp { port: Some(port) } => (Some(port), 1),
        Listen::Tcp { port: None } => (None, PORT_ATTEMPTS),
    };
    let port = fixed.map_or_else(free_port, Ok)?;
    let socket_dir = layout.socket_dir(&account, port)?;
    let tcp = options.listen != Listen::Socket;
    let mut supervisor = Supervisor::new(layout, binaries, account, options, socket_dir, port);
    start_on_free_port(&mut supervisor, attempts)?;
    let facts = Facts {
        root: supervisor.layout.root().to_owned(),
        socket_dir: supervisor.socket_dir.clone(),
        port: supervisor.port,
        tcp,
        password: password.trim().to_owned(),
        binaries: supervisor.binaries.clone(),
        account: supervisor.account.clone(),
    };
    Ok((supervisor, facts))
}

fn start_on_free_port(supervisor: &mut Supervisor, attempts: u32) -> Result<(), EmbeddedError> {
    for _ in 1..attempts {
        match supervisor.start() {
            Err(EmbeddedError::NotStarted { tail, .. }) if tail.contains("already in use") => {
                supervisor.port = free_port()?;
                supervisor.socket_dir = supervisor
                    .layout
                    .socket_dir(&supervisor.account, supervisor.port)?;
            }
            done => return done,
        }
    }
    supervisor.start()
}

fn free_port() -> Result<u16, EmbeddedError> {
    let port = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr();
    port()
        .map(|address| address.port())
        .map_err(|source| EmbeddedError::System {
            what: "find a free port on loopback",
            source,
        })
}

/// A database name as an SQL identifier.
fn quoted(name: &str) -> Result<String, EmbeddedError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
        return Err(EmbeddedError::DatabaseName { name: name.into() });
    }
    Ok(format!("\"{name}\""))
}

fn has_code(error: &EmbeddedError, code: &str) -> bool {
    match error {
        EmbeddedError::Sql { source, .. } => source
            .as_database_error()
            .is_some_and(|error| error.code().as_deref() == Some(code)),
        _ => false,
    }
}

/// Everything but unreserved characters, as a query value wants it.
fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_become_databases() {
        assert_eq!(quoted("tidegate_dev-1").unwrap(), "\"tidegate_dev-1\"");
        for name in ["", "a\"; drop", "Größe", "a b", &"x".repeat(64)] {
            assert!(quoted(name).is_err(), "{name}");
        }
    }

    #[test]
    fn addresses_survive_odd_directories() {
        assert_eq!(percent_encode("/a b/%ü?"), "%2Fa%20b%2F%25%C3%BC%3F");
    }
}
