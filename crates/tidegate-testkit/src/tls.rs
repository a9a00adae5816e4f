//! Certificates for tests: an authority, servers it vouches for, and servers it does not.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::scratch;

/// A certificate authority of its own. A second one is the "wrong" authority of a test.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A server's certificate and key, PEM.
#[derive(Clone)]
pub struct ServerCertificate {
    /// The server's certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The authority that signed it.
    pub authority: String,
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerCertificate")
    }
}

/// The same as files.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signed it.
    pub authority: PathBuf,
}

impl Authority {
    /// A new authority; `name` tells two of them apart in errors.
    pub fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, new_key());
        Self {
            issuer: issuer.expect("a self-signed authority"),
        }
    }

    /// What clients are to trust, PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for a server on this machine.
    pub fn localhost(&self) -> ServerCertificate {
        self.server(&["localhost", "127.0.0.1", "::1"])
    }

    /// A certificate for a server with these names and addresses.
    pub fn server(&self, names: &[&str]) -> ServerCertificate {
        self.sign(&params("server", names))
    }

    /// A certificate for this machine whose time is over.
    pub fn expired(&self) -> ServerCertificate {
        let mut params = params("server", &["localhost", "127.0.0.1"]);
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> ServerCertificate {
        let key = new_key();
        let signed = params.signed_by(&key, &self.issuer);
        ServerCertificate {
            certificate: signed.expect("a certificate from our authority").pem(),
            key: key.serialize_pem(),
            authority: self.pem(),
        }
    }
}

impl ServerCertificate {
    /// Writes the three parts into a new directory.
    pub fn to_files(&self) -> CertificateFiles {
        let dir = scratch::directory("tls");
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).expect("a file in a new directory");
            path
        };
        CertificateFiles {
            certificate: write("server.crt", &self.certificate),
            key: write("server.key", &self.key),
            authority: write("ca.crt", &self.authority),
        }
    }
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("valid names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key from the system's randomness")
}
