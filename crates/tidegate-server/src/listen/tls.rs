//! The certificate of the listener (R1.10).

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// A certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or holds no PEM of the kind.
    #[error("{variable}: cannot read {what} from {}; it must be a PEM file", path.display())]
    File {
        /// The setting to change.
        variable: &'static str,
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// They do not belong together, or are of a kind that is not supported.
    #[error("TIDEGATE_TLS_CERT and TIDEGATE_TLS_KEY cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// Reads both, PEM, and checks that they belong together. The chain begins with the server's own certificate.
pub fn load(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = read_chain(cert)
        .map_err(|source| file("TIDEGATE_TLS_CERT", "a certificate", cert, source))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|source| {
        file(
            "TIDEGATE_TLS_KEY",
            "a private key",
            key,
            io::Error::other(source),
        )
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read_chain(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let chain = chain.map_err(io::Error::other)?;
    if chain.is_empty() {
        return Err(io::Error::other("the file holds no certificate"));
    }
    Ok(chain)
}

fn file(variable: &'static str, what: &'static str, path: &Path, source: io::Error) -> TlsError {
    TlsError::File {
        variable,
        what,
        path: path.to_owned(),
        source,
    }
}
