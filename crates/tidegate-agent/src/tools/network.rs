//! Connections of tools: only to addresses that were themselves checked (O-27).
//!
//! The name of a host is looked up once for each connection, here, and the connection goes to what was found and
//! checked; nothing looks it up again. Addresses in a URL never meet a resolver, so they are checked in the URL, of
//! every redirect too.

use std::{
    error::Error as _,
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use reqwest::{
    Certificate, Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use tidegate_policy::egress::Egress;

use crate::limits;

/// Finds the addresses of a host; that of the system, or a test's.
#[async_trait]
pub trait Lookup: fmt::Debug + Send + Sync {
    /// Every address of the host.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy)]
struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Where tools over HTTP may be called, and whom to trust there.
#[derive(Debug)]
pub struct Network {
    guard: Guard,
    authorities: Vec<Certificate>,
    mcp: OnceLock<Result<Client, String>>,
    plain: OnceLock<Result<Client, String>>,
}

impl Default for Network {
    fn default() -> Self {
        Self::with_lookup(Egress::default(), Arc::new(SystemLookup))
    }
}

impl Network {
    /// These networks, with the system's resolver and certificate authorities.
    pub fn new(egress: Egress) -> Self {
        Self::with_lookup(egress, Arc::new(SystemLookup))
    }

    /// The same with another resolver.
    pub fn with_lookup(egress: Egress, lookup: Arc<dyn Lookup>) -> Self {
        Self {
            guard: Guard { egress, lookup },
            authorities: Vec::new(),
            mcp: OnceLock::new(),
            plain: OnceLock::new(),
        }
    }

    /// Trusts the authorities in a PEM file too. The error is one sentence.
    pub fn trust(mut self, path: &Path) -> Result<Self, String> {
        let problem = |what: &str| format!("{} {what}", path.display());
        let pem =
            std::fs::read(path).map_err(|error| problem(&format!("cannot be read: {error}")))?;
        let authorities = Certificate::from_pem_bundle(&pem);
        let authorities = authorities.map_err(|_| problem("holds no valid PEM certificate"))?;
        if authorities.is_empty() {
            return Err(problem("holds no PEM certificate"));
        }
        self.authorities.extend(authorities);
        Ok(self)
    }

    /// Whether a request may be sent there, as far as the URL tells; what a name stands for is checked on connecting.
    pub(super) fn check(&self, url: &Url) -> Result<(), Refused> {
        let host = url.host_str().unwrap_or_default();
        let open = match address_of(url) {
            Some(address) => self.guard.egress.allows(address),
            None => !host.is_empty(),
        };
        if open && matches!(url.scheme(), "http" | "https") {
            return Ok(());
        }
        Err(Refused {
            host: host.to_owned(),
        })
    }

    /// A client for MCP: follows a redirect within one origin only, since its headers are for that one.
    pub(super) fn mcp_client(&self) -> Result<Client, String> {
        let policy = redirect::Policy::custom(|attempt| {
            let asked = attempt.previous().first();
            let stays = asked.is_some_and(|asked| is_same_origin(asked, attempt.url()));
            let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
            if stays && keeps_method && attempt.previous().len() <= limits::REDIRECTS {
                attempt.follow()
            } else {
                attempt.error("it redirects to another place; set its URL to where it is")
            }
        });
        self.mcp.get_or_init(|| self.client(policy)).clone()
    }

    /// A client that follows nothing by itself.
    pub(super) fn plain_client(&self) -> Result<Client, String> {
        let none = redirect::Policy::none();
        self.plain.get_or_init(|| self.client(none)).clone()
    }

    fn client(&self, redirects: redirect::Policy) -> Result<Client, String> {
        Client::builder()
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(limits::CONNECT_TIMEOUT)
            .redirect(redirects)
            .referer(false)
            // A proxy would do the looking up, unchecked.
            .no_proxy()
            .retry(reqwest::retry::never())
            .dns_resolver(Arc::new(self.guard.clone()))
            .tls_certs_merge(self.authorities.clone())
            .build()
            .map_err(|error| {
                let cause = error.source().map(ToString::to_string).unwrap_or_default();
                format!("its HTTP client cannot be made: {error} {cause}")
            })
    }
}

/// Whether two URLs are of one scheme, host and port.
pub(super) fn is_same_origin(one: &Url, two: &Url) -> bool {
    one.scheme() == two.scheme()
        && one.host_str() == two.host_str()
        && one.port_or_known_default() == two.port_or_known_default()
}

/// The address that a URL names: every way to write one was read by the parser of URLs already, and IPv6 stands in
/// brackets.
fn address_of(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// What stands at the end of a chain of errors: without URLs, which the outer ones name.
pub(super) fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// A host without an address that may be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} has no address that tools may be called at; the operator of this server can allow its network in TIDEGATE_TOOL_NETWORKS"
)]
pub(super) struct Refused {
    host: String,
}

/// The resolver of every client: what it does not let through is not connected to.
#[derive(Debug, Clone)]
struct Guard {
    egress: Egress,
    lookup: Arc<dyn Lookup>,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { egress, lookup } = self.clone();
        Box::pin(async move {
            let mut open = lookup.lookup(name.as_str()).await?;
            open.retain(|address| egress.allows(*address));
            if open.is_empty() {
                let host = name.as_str().to_owned();
                return Err(Refused { host }.into());
            }
            // The port is that of the URL.
            let addresses = open.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O-27: an address is refused in whatever form a URL writes it.
    #[test]
    fn addresses_in_urls_are_checked_in_every_form() {
        let network = Network::new(Egress::new(vec!["127.0.0.1".parse().unwrap()]));
        let check = |url: &str| network.check(&Url::parse(url).unwrap());
        for refused in [
            "http://127.0.0.2/",
            "http://2130706434/",
            "http://0x7f.0.0.2/",
            "http://0177.0.0.02/",
            "http://127.2/",
            "http://[::ffff:127.0.0.2]/",
            "http://[::ffff:7f00:2]/",
            "http://[::1]:80/",
            "http://169.254.169.254/latest/meta-data",
            "https://10.0.0.1",
            "ftp://8.8.8.8/",
        ] {
            assert!(check(refused).is_err(), "{refused}");
        }
        for open in [
            "http://127.0.0.1:1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::ffff:127.0.0.1]/",
            "https://8.8.8.8/",
            "https://[2606:4700::1111]/",
            "https://tools.example/",
        ] {
            assert!(check(open).is_ok(), "{open}");
        }
    }
}
