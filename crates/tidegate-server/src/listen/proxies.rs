//! Whose word is taken for the address of a client.

use std::net::IpAddr;

use http::HeaderMap;
use tidegate_engine::settings::IpRange;

/// The networks of trusted proxies. Empty: `X-Forwarded-For` is ignored, since anyone can send it.
#[derive(Debug, Clone, Default)]
pub struct Proxies(Vec<IpRange>);

impl Proxies {
    /// Trusts these networks.
    pub const fn new(networks: Vec<IpRange>) -> Self {
        Self(networks)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// The client's address: walking back from the peer, the first one that is not a trusted proxy.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        let hops: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .collect();
        for hop in hops.iter().rev() {
            if !self.trusts(client) {
                break;
            }
            match hop.trim().parse::<IpAddr>() {
                Ok(address) => client = address,
                Err(_) => break,
            }
        }
        client.to_canonical()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(trusted: &[&str], peer: &str, forwarded: &'static str) -> String {
        let ranges = trusted.iter().map(|text| text.parse().unwrap());
        let proxies = Proxies::new(ranges.collect());
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static(forwarded));
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    /// R1.10: only a trusted proxy names the client.
    #[test]
    fn a_header_counts_only_when_a_trusted_proxy_sent_it() {
        assert_eq!(client(&[], "192.0.2.1", "203.0.113.9"), "192.0.2.1");
        let ours = ["10.0.0.0/8", "::1"];
        assert_eq!(client(&ours, "10.0.0.1", "203.0.113.9"), "203.0.113.9");
        assert_eq!(
            client(&ours, "::ffff:10.0.0.1", "203.0.113.9"),
            "203.0.113.9"
        );
        // What the client itself wrote stands left of what our proxy added.
        assert_eq!(
            client(&ours, "10.0.0.1", "1.2.3.4, 203.0.113.9, 10.0.0.2"),
            "203.0.113.9"
        );
        assert_eq!(client(&ours, "10.0.0.1", "nonsense"), "10.0.0.1");
    }
}
