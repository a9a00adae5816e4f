//! What a server needs of its own machine: its certificate and its addresses. Taken before anything else is asked or
//! changed, so that a taken port or an unusable certificate leaves no trace elsewhere (R1.1, R1.10).
//!
//! An address is bound and not listened on: until the server is ready, connections are refused, as they should be where
//! nobody serves.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::ServerConfig;
use tidegate_engine::settings::Settings;
use tokio::net::{TcpListener, TcpSocket};

use super::{serve::ServeError, tls};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;
/// What the system may hold of answers that a peer has not taken, per connection, in bytes; left to itself it takes
/// megabytes for each. Linux doubles it for its own use.
const SEND_BUFFER_BYTES: u32 = 256 << 10;

/// What was taken.
#[derive(Debug)]
pub struct Local {
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) api: Bound,
    pub(super) operators: Option<Bound>,
}

/// An address that is bound, and by which setting.
#[derive(Debug)]
pub(super) struct Bound {
    variable: &'static str,
    address: SocketAddr,
    socket: TcpSocket,
}

impl Local {
    /// Takes what the settings ask for: the API's address with or without TLS and, where set, the operator's.
    pub fn take(settings: &Settings) -> Result<Self, ServeError> {
        let tls = match (&settings.tls_cert, &settings.tls_key) {
            (Some(cert), Some(key)) => Some(tls::load(cert, key)?),
            _ => None,
        };
        let api = Bound::to("TIDEGATE_LISTEN", settings.listen)?;
        let operators = settings
            .metrics_listen
            .map(|address| Bound::to("TIDEGATE_METRICS_LISTEN", address))
            .transpose()?;
        Ok(Self {
            tls,
            api,
            operators,
        })
    }
}

impl Bound {
    fn to(variable: &'static str, address: SocketAddr) -> Result<Self, ServeError> {
        let bind = || -> io::Result<TcpSocket> {
            let socket = if address.is_ipv4() {
                TcpSocket::new_v4()?
            } else {
                TcpSocket::new_v6()?
            };
            // As every server does: a port whose last connections are still dying is free.
            socket.set_reuseaddr(true)?;
            // Connections inherit it.
            socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
            socket.bind(address)?;
            Ok(socket)
        };
        match bind() {
            Ok(socket) => Ok(Self {
                variable,
                address,
                socket,
            }),
            Err(source) => Err(ServeError::Bind {
                variable,
                address,
                source,
            }),
        }
    }

    /// Listens from now on. Another process that bound the same address in the same moment may have been faster.
    pub(super) fn listen(self) -> Result<TcpListener, ServeError> {
        let Self {
            variable,
            address,
            socket,
        } = self;
        socket.listen(BACKLOG).map_err(|source| ServeError::Bind {
            variable,
            address,
            source,
        })
    }
}
