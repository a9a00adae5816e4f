//! A proxy that misbehaves on command: delay, silence, refusal, cuts.
//!
//! It stands between a client and a server of any protocol, on loopback TCP, and can reach its
//! target over TCP or a unix socket (such as that of the private PostgreSQL). Faults apply to
//! open connections at once, so that a test needs no guess about timing.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

const CHUNK: usize = 16 * 1024;

/// Where the connections go.
#[derive(Debug, Clone)]
pub enum Target {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// Which way bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What happens to bytes and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Pass,
    /// Bytes wait.
    Hold,
    /// Bytes vanish, as on a path that drops packets.
    BlackHole,
    /// New connections are cut at once; open ones go on.
    Refuse,
}

#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    mode: Mode,
    delay: Duration,
    cut_up_after: Option<u64>,
    cut_down_after: Option<u64>,
    /// Connections made under an earlier epoch are cut.
    epoch: u64,
}

/// A running proxy; it ends, with its connections, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    open: AtomicUsize,
}

impl Proxy {
    /// Listens on a free port of loopback.
    pub async fn start(target: Target) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port on loopback");
        let address = listener.local_addr().expect("its address");
        let (faults, told) = watch::channel(Faults::default());
        let counts = Arc::new(Counts::default());
        let accepting = tokio::spawn(accept(listener, target, told, Arc::clone(&counts)));
        Self {
            address,
            faults,
            counts,
            accepting,
        }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// Every chunk waits this long, each way.
    pub fn delay(&self, delay: Duration) {
        self.faults.send_modify(|faults| faults.delay = delay);
    }

    /// Bytes wait until [`Self::heal`]; nothing is lost.
    pub fn pause(&self) {
        self.mode(Mode::Hold);
    }

    /// Bytes vanish while connections stay open.
    pub fn black_hole(&self) {
        self.mode(Mode::BlackHole);
    }

    /// New connections are reset at once.
    pub fn refuse(&self) {
        self.mode(Mode::Refuse);
    }

    /// Resets every open connection once.
    pub fn cut(&self) {
        self.faults.send_modify(|faults| faults.epoch += 1);
    }

    /// Resets each connection after it has carried `bytes` in this direction.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        self.faults.send_modify(|faults| match way {
            Way::Up => faults.cut_up_after = Some(bytes),
            Way::Down => faults.cut_down_after = Some(bytes),
        });
    }

    /// Refuses and resets: what a dead host looks like from outside.
    pub fn down(&self) {
        self.refuse();
        self.cut();
    }

    /// Takes every fault back.
    pub fn heal(&self) {
        self.faults.send_modify(|faults| {
            *faults = Faults {
                epoch: faults.epoch,
                ..Faults::default()
            };
        });
    }

    fn mode(&self, mode: Mode) {
        self.faults.send_modify(|faults| faults.mode = mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The set of connections belongs to this task and goes with it.
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: Target,
    faults: watch::Receiver<Faults>,
    counts: Arc<Counts>,
) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        let open = Open::count(Arc::clone(&counts));
        let (target, faults) = (target.clone(), faults.clone());
        connections.spawn(async move {
            let _open = open;
            // A reset is what the other side of a broken connection sees anyway.
            let _ = client.set_zero_linger();
            let _ = carry(client, target, faults).await;
        });
    }
}

struct Open(Arc<Counts>);

impl Open {
    fn count(counts: Arc<Counts>) -> Self {
        counts.open.fetch_add(1, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection until an end, an error or a fault.
async fn carry(
    mut client: TcpStream,
    target: Target,
    faults: watch::Receiver<Faults>,
) -> io::Result<()> {
    if faults.borrow().mode == Mode::Refuse {
        return Ok(());
    }
    let (from_client, to_client) = client.split();
    match target {
        Target::Tcp(address) => {
            let mut server = TcpStream::connect(address).await?;
            server.set_zero_linger()?;
            let (from_server, to_server) = server.split();
            both(from_client, to_server, from_server, to_client, faults).await
        }
        Target::Unix(path) => {
            let mut server = UnixStream::connect(path).await?;
            let (from_server, to_server) = server.split();
            both(from_client, to_server, from_server, to_client, faults).await
        }
    }
}

/// A clean end of one side is passed on as such; anything else ends both at once.
async fn both(
    from_client: impl AsyncRead + Unpin,
    to_server: impl AsyncWrite + Unpin,
    from_server: impl AsyncRead + Unpin,
    to_client: impl AsyncWrite + Unpin,
    faults: watch::Receiver<Faults>,
) -> io::Result<()> {
    let up = pump(from_client, to_server, Way::Up, faults.clone());
    let down = pump(from_server, to_client, Way::Down, faults);
    tokio::try_join!(up, down).map(drop)
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    mut faults: watch::Receiver<Faults>,
) -> io::Result<()> {
    let born = faults.borrow().epoch;
    let mut chunk = vec![0; CHUNK];
    let mut carried: u64 = 0;
    loop {
        let length = tokio::select! {
            read = from.read(&mut chunk) => read?,
            () = cut(&mut faults, born) => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        if length == 0 {
            return to.shutdown().await;
        }
        let delay = faults.borrow().delay;
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = cut(&mut faults, born) => {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        let now = released(&mut faults, born).await?;
        if now.mode == Mode::BlackHole {
            continue;
        }
        let limit = match way {
            Way::Up => now.cut_up_after,
            Way::Down => now.cut_down_after,
        };
        let room = limit.map_or(u64::MAX, |limit| limit.saturating_sub(carried));
        let part = usize::try_from(room).unwrap_or(usize::MAX).min(length);
        to.write_all(&chunk[..part]).await?;
        to.flush().await?;
        carried += u64::try_from(part).unwrap_or(u64::MAX);
        if part < length || limit == Some(carried) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    }
}

/// Waits while bytes are held; an error means that the connection was cut meanwhile.
async fn released(faults: &mut watch::Receiver<Faults>, born: u64) -> io::Result<Faults> {
    let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
    let state = faults
        .wait_for(|faults| faults.mode != Mode::Hold || faults.epoch != born)
        .await
        .map_err(|_| gone())?;
    if state.epoch == born {
        Ok(*state)
    } else {
        Err(gone())
    }
}

/// Returns when this connection is to be cut.
async fn cut(faults: &mut watch::Receiver<Faults>, born: u64) {
    // The proxy is gone: that ends its connections as well.
    let _ = faults.wait_for(|faults| faults.epoch != born).await;
}
