//! TLS before a server that has none, with a certificate of the test's choice.
//!
//! The PostgreSQL and Redis that a machine without root gets are built without TLS, and what is to
//! be proven is how *our* side treats certificates. So the test kit ends TLS itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::proxy::Target;
use crate::tls::ServerCertificate;

/// Length and code of PostgreSQL's request for TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// What comes before the TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// Nothing: Redis, HTTPS.
    Direct,
    /// PostgreSQL's request in clear; who does not ask is turned away.
    Postgres,
}

/// A running front; it ends, with its connections, when it is dropped.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl TlsFront {
    /// Listens on a free port of loopback.
    pub async fn start(
        target: Target,
        certificate: &ServerCertificate,
        handshake: Handshake,
    ) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config(certificate)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port on loopback");
        let address = listener.local_addr().expect("its address");
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(serve(client, acceptor.clone(), target.clone(), handshake));
            }
        });
        Self { address, accepting }
    }

    /// Where clients connect; the certificate of [`crate::Authority::localhost`] fits it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        // The set of connections belongs to this task and goes with it.
        self.accepting.abort();
    }
}

fn config(certificate: &ServerCertificate) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(certificate.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .expect("a certificate in PEM");
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).expect("a key in PEM");
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("protocol versions that ring has")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a key that fits the certificate")
}

/// Errors end the connection, which is what the client is to see.
async fn serve(
    mut client: TcpStream,
    acceptor: TlsAcceptor,
    target: Target,
    handshake: Handshake,
) -> io::Result<()> {
    if handshake == Handshake::Postgres {
        let mut request = [0; 8];
        client.read_exact(&mut request).await?;
        if request != SSL_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        client.write_all(b"S").await?;
    }
    let mut client = acceptor.accept(client).await?;
    match target {
        Target::Tcp(address) => {
            let mut server = TcpStream::connect(address).await?;
            copy_bidirectional(&mut client, &mut server).await
        }
        Target::Unix(path) => {
            let mut server = UnixStream::connect(path).await?;
            copy_bidirectional(&mut client, &mut server).await
        }
    }
    .map(drop)
}
