//! The client and how it is made.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{Url, redirect};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Error, Result, RetryPolicy, ambient::Dice, limits};

/// Speaks to one server with one key. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) deadline: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) write_key: Option<Arc<str>>,
}

pub(crate) struct Shared {
    pub(crate) http: reqwest::Client,
    pub(crate) base: Url,
    pub(crate) key: Option<SecretString>,
    pub(crate) dice: Dice,
    pub(crate) try_timeout: Duration,
    pub(crate) stream_idle_timeout: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base_url", &self.base_url())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at `base_url`, for example `http://127.0.0.1:8480`, with defaults.
    pub fn new(base_url: &str, key: impl Into<SecretString>) -> Result<Self> {
        Self::builder(base_url).key(key).build()
    }

    /// Sets more than the defaults.
    pub fn builder(base_url: &str) -> ClientBuilder {
        ClientBuilder {
            base_url: base_url.to_owned(),
            key: None,
            deadline: limits::CALL_DEADLINE,
            try_timeout: limits::TRY_TIMEOUT,
            stream_idle_timeout: limits::STREAM_IDLE_TIMEOUT,
            retry: RetryPolicy::default(),
            ca_pem: None,
        }
    }

    /// The same client with another overall deadline per call: tries and waits end with it (O-28).
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            deadline,
            ..self.clone()
        }
    }

    /// The same client with another way to repeat.
    #[must_use]
    pub fn with_retry(&self, retry: RetryPolicy) -> Self {
        Self {
            retry,
            ..self.clone()
        }
    }

    /// The same client for one write under this idempotency key, so that a caller who starts again repeats the same write;
    /// without one each write has a key of its own, which only its tries share.
    #[must_use]
    pub fn with_idempotency_key(&self, key: Option<&str>) -> Self {
        Self {
            write_key: key.map(Arc::from),
            ..self.clone()
        }
    }

    /// The server's address, without a trailing slash.
    pub fn base_url(&self) -> &str {
        self.shared.base.as_str().trim_end_matches('/')
    }
}

/// Makes a [`Client`].
#[derive(Debug)]
pub struct ClientBuilder {
    base_url: String,
    key: Option<SecretString>,
    deadline: Duration,
    try_timeout: Duration,
    stream_idle_timeout: Duration,
    retry: RetryPolicy,
    ca_pem: Option<Vec<u8>>,
}

impl ClientBuilder {
    /// The API key (`tg_…`). Without one only the probes answer.
    #[must_use]
    pub fn key(mut self, key: impl Into<SecretString>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// How long a call may take in all.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long one try may take; the deadline shortens it.
    #[must_use]
    pub const fn try_timeout(mut self, try_timeout: Duration) -> Self {
        self.try_timeout = try_timeout;
        self
    }

    /// After how long without a byte a stream is opened again.
    #[must_use]
    pub const fn stream_idle_timeout(mut self, timeout: Duration) -> Self {
        self.stream_idle_timeout = timeout;
        self
    }

    /// How failed tries are repeated.
    #[must_use]
    pub const fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// A certificate authority (PEM) that is trusted besides the system's.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_pem = Some(pem.into());
        self
    }

    /// Makes the client; nothing is sent yet.
    pub fn build(self) -> Result<Client> {
        let base = parse_base(&self.base_url)?;
        let graphic =
            |key: &SecretString| key.expose_secret().bytes().all(|b| b.is_ascii_graphic());
        if !self.key.as_ref().is_none_or(graphic) {
            // No header could carry it, and every call would look like a server that cannot be reached.
            return Err(Error::Configuration {
                field: "TIDEGATE_KEY",
                detail:
                    "the API key holds a space, a line break or another character that no key has"
                        .to_owned(),
            });
        }
        install_crypto();
        let mut http = reqwest::Client::builder()
            .connect_timeout(limits::CONNECT_TIMEOUT)
            // A redirect would carry the key to an address that nobody configured.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("tidegate-client/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&base) {
            // A proxy of the environment cannot reach this machine's loopback.
            http = http.no_proxy();
        }
        if let Some(pem) = &self.ca_pem {
            for certificate in certificates(pem)? {
                http = http.add_root_certificate(certificate);
            }
        }
        let http = http.build().map_err(|error| Error::Configuration {
            field: "TLS",
            detail: format!(
                "cannot set up connections: {}",
                crate::request::reason(&error)
            ),
        })?;
        Ok(Client {
            shared: Arc::new(Shared {
                http,
                base,
                key: self.key,
                dice: Dice::ambient(),
                try_timeout: self.try_timeout,
                stream_idle_timeout: self.stream_idle_timeout,
            }),
            deadline: self.deadline,
            retry: self.retry,
            write_key: None,
        })
    }
}

fn parse_base(text: &str) -> Result<Url> {
    let refuse = |why: &str| Error::Configuration {
        field: "TIDEGATE_URL",
        detail: format!("{why}; expected an address such as http://127.0.0.1:8480"),
    };
    let base = Url::parse(text.trim_end_matches('/')).map_err(|_| refuse("not a URL"))?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err(refuse("not an http or https address"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err(refuse("credentials do not belong into the address"));
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(refuse("the address has a query or a fragment"));
    }
    Ok(base)
}

fn is_loopback(base: &Url) -> bool {
    base.host_str().is_some_and(|host| {
        host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    })
}

fn certificates(pem: &[u8]) -> Result<Vec<reqwest::Certificate>> {
    let refuse = || Error::Configuration {
        field: "certificate authority",
        detail: "not a PEM file with certificates".to_owned(),
    };
    let found = reqwest::Certificate::from_pem_bundle(pem).map_err(|_| refuse())?;
    if found.is_empty() {
        return Err(refuse());
    }
    Ok(found)
}

/// TLS needs a provider of primitives for the whole process; an application that chose one keeps it.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _raced = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_address_names_the_variable_and_a_good_one() {
        for bad in [
            "",
            "127.0.0.1:8480",
            "ftp://example.test",
            "http://",
            "http://user:secret@example.test",
            "http://example.test/?q=1",
        ] {
            let error = Client::new(bad, "tg_x").unwrap_err().to_string();
            assert!(
                error.contains("TIDEGATE_URL") && error.contains("http://127.0.0.1:8480"),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
        for bad in ["tg_x\r", "tg_x\n", "tg x", "tg_é"] {
            let error = Client::new("http://localhost:8480", bad).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("TIDEGATE_KEY: "), "{error}");
            assert!(!error.contains(bad), "{error}");
        }
        let client = Client::new("http://localhost:8480/", "tg_x").unwrap();
        assert_eq!(client.base_url(), "http://localhost:8480");
        assert!(!format!("{client:?}").contains("tg_x"));
    }
}
