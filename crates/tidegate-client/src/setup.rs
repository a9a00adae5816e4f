//! What keeps a connection from ever coming about as things are set up, read from what broke: a certificate, the wrong
//! scheme, a name that does not exist. Trying again changes none of them, so that a call says so at once.

use std::{error::Error as StdError, fmt, io};

use rustls::CertificateError;

/// Why no connection can come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupCause {
    /// The server's certificate is signed by an authority that is not trusted here.
    UnknownAuthority,
    /// The server shows a certificate that is marked as an authority's own, as a plain `openssl req -x509` makes it.
    AuthorityAsServer,
    /// The certificate does not carry the name or address that was asked for.
    OtherName,
    /// The certificate is past its end, or before its beginning.
    OutOfTime,
    /// The certificate cannot be used for another reason, or TLS has no common ground.
    Tls,
    /// The address says `https`, the server speaks no TLS.
    NoTls,
    /// The address says `http`, the server does not answer in plain HTTP.
    NoHttp,
    /// The address holds a name that does not exist.
    NoSuchName,
}

impl SetupCause {
    /// What to do about it, in one sentence.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::UnknownAuthority => {
                "trust the authority that signed the server's certificate: give its PEM file (not the server's own \
                 certificate) as the certificate authority"
            }
            Self::AuthorityAsServer => {
                "a self-signed certificate that is marked as an authority (CA:TRUE) cannot be a server's: make one with \
                 basicConstraints CA:FALSE, or an authority and a certificate signed by it"
            }
            Self::OtherName => {
                "use a name that stands in the certificate, or give the server a certificate with this one \
                 (subjectAltName)"
            }
            Self::OutOfTime => {
                "renew the server's certificate, and check the clocks of both machines"
            }
            Self::Tls => "check the server's certificate and which versions of TLS it speaks",
            Self::NoTls => "begin the address with http://, or give the server a certificate",
            Self::NoHttp => {
                "begin the address with https:// if the server has TLS, and check that the port is Tidegate's"
            }
            Self::NoSuchName => {
                "correct the name in the address, or its entry in DNS or /etc/hosts"
            }
        }
    }
}

impl fmt::Display for SetupCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownAuthority => {
                "its certificate is signed by an authority that is not trusted here"
            }
            Self::AuthorityAsServer => "its certificate is marked as an authority's",
            Self::OtherName => "its certificate does not carry this name",
            Self::OutOfTime => "its certificate has expired or is not valid yet",
            Self::Tls => "TLS cannot be agreed on",
            Self::NoTls => "it speaks no TLS",
            Self::NoHttp => "it does not answer in plain HTTP",
            Self::NoSuchName => "the name does not exist",
        })
    }
}

/// The cause that trying again cannot cure; nothing where another try may get through.
pub(crate) fn cause(error: &(dyn StdError + 'static), plain: bool) -> Option<SetupCause> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(of_tls(tls));
        }
        // A server that speaks TLS answers plain HTTP with an alert, which is no HTTP.
        if plain
            && error
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_parse)
        {
            return Some(SetupCause::NoHttp);
        }
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| is_no_such_name(&error.to_string())) {
            return Some(SetupCause::NoSuchName);
        }
        // An I/O error hides the error it was made of from the chain of sources.
        let inner = io
            .and_then(io::Error::get_ref)
            .map(|inner| inner as &(dyn StdError + 'static));
        next = inner.or_else(|| error.source());
    }
    None
}

fn of_tls(error: &rustls::Error) -> SetupCause {
    match error {
        // The first bytes of the answer are no record of TLS.
        rustls::Error::InvalidMessage(_) => SetupCause::NoTls,
        rustls::Error::InvalidCertificate(certificate) => of_certificate(certificate),
        _ => SetupCause::Tls,
    }
}

fn of_certificate(error: &CertificateError) -> SetupCause {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            SetupCause::UnknownAuthority
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            SetupCause::OtherName
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => SetupCause::OutOfTime,
        // The verifier's own error; its type belongs to a crate that is not ours to name.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            SetupCause::AuthorityAsServer
        }
        _ => SetupCause::Tls,
    }
}

/// The system's answer has no kind of its own. One that is temporary is tried again.
fn is_no_such_name(text: &str) -> bool {
    text.contains("failed to lookup address information")
        && !["emporary failure", "ry again"]
            .iter()
            .any(|temporary| text.contains(temporary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_as_it_is_counts() {
        let io = |text: &str| io::Error::other(text.to_owned());
        let lookup = "failed to lookup address information: ";
        for (text, expected) in [
            (
                format!("{lookup}Name or service not known"),
                Some(SetupCause::NoSuchName),
            ),
            (
                format!("{lookup}No address associated with hostname"),
                Some(SetupCause::NoSuchName),
            ),
            (
                format!("{lookup}Temporary failure in name resolution"),
                None,
            ),
            ("connection reset by peer".to_owned(), None),
        ] {
            assert_eq!(cause(&io(&text), true), expected, "{text}");
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(cause(&refused, true), None);
    }

    #[test]
    fn an_error_inside_an_io_error_is_found() {
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::new(io::ErrorKind::InvalidData, unknown);
        assert_eq!(cause(&wrapped, false), Some(SetupCause::UnknownAuthority));
    }
}
