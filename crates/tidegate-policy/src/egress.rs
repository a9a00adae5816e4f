//! Which addresses tool calls may go to (O-27). A name is checked by the addresses it stands for, never by its letters.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A network, written `10.0.0.0/8`; an address alone is a network of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpRange {
    address: IpAddr,
    prefix: u8,
}

impl IpRange {
    /// Whether an address is in it. An IPv4 address that came in over an IPv6 socket counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shift = |bits: u8| bits.saturating_sub(self.prefix);
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(shift(32).into()).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(shift(128).into()).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for IpRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| ())?,
            None => most,
        };
        if prefix > most {
            return Err(());
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Where calls may go: to public addresses, and to the networks that the operator names besides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    allowed: Vec<IpRange>,
}

impl Egress {
    /// Public addresses and these networks.
    pub const fn new(allowed: Vec<IpRange>) -> Self {
        Self { allowed }
    }

    /// Whether a connection to this address may be opened.
    pub fn allows(&self, address: IpAddr) -> bool {
        let inner = carried(address);
        let named = |address| self.allowed.iter().any(|range| range.contains(address));
        named(address) || named(inner) || is_public(inner)
    }
}

/// The IPv4 address that an IPv6 address leads to: mapped, behind NAT64, or by 6to4; else the address itself.
fn carried(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let bits = v6.to_bits();
    let low = |bits: u128| {
        IpAddr::V4(Ipv4Addr::from_bits(
            u32::try_from(bits & 0xffff_ffff).unwrap_or(0),
        ))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => low(bits),
        [0x2002, ..] => low(bits >> 80),
        _ => address,
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// By the registry of special-purpose addresses; what is not named there is public.
fn is_public_v4(v4: Ipv4Addr) -> bool {
    !matches!(
        v4.octets(),
        // This network, private, loopback; multicast, reserved, broadcast.
        [0 | 10 | 127 | 224..=255, ..] | [172, 16..=31, ..] | [192, 168, ..]
            // Link-local, where machines are told their secrets.
            | [169, 254, ..]
            // Shared by carriers; protocol assignments and documentation; relays; benchmarks.
            | [100, 64..=127, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            // Documentation.
            | [198, 51, 100, _]
            | [203, 0, 113, _]
    )
}

/// Only 2000::/3 is handed out; of it, protocol assignments and documentation are not public.
fn is_public_v6(v6: Ipv6Addr) -> bool {
    match v6.segments() {
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        let range: IpRange = "10.1.0.0/16".parse().unwrap();
        assert!(range.contains(ip("10.1.255.3")));
        assert!(range.contains(ip("::ffff:10.1.0.9")));
        assert!(!range.contains(ip("10.2.0.1")));
        assert!(!range.contains(ip("::1")));
        let all: IpRange = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains(ip("192.0.2.1")));
        let one: IpRange = "192.0.2.1".parse().unwrap();
        assert!(!one.contains(ip("192.0.2.2")));
        for bad in ["10.0.0.0/33", "x", "10.0.0.0/", "/8"] {
            assert!(bad.parse::<IpRange>().is_err(), "{bad}");
        }
    }

    const PRIVATE: &str = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 127.0.0.1 127.8.8.8 169.254.169.254 172.16.0.1
        172.31.255.255 192.0.0.1 192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.9 224.0.0.1 240.0.0.1
        255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 64:ff9b::7f00:1 64:ff9b:1::1
        2002:7f00:1:: 2002:a00:1::1 fc00::1 fd12::1 fe80::1 fec0::1 ff02::1 2001::1 2001:db8::1 100::1 3fff::1";
    const PUBLIC: &str = "1.1.1.1 8.8.8.8 100.63.0.1 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 192.167.0.1
        223.255.255.255 2606:4700::1111 2001:4860:4860::8888 2a00::1 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1";

    /// O-27: nothing of the machine, its networks or its neighbours is public, in whatever form it is written.
    #[test]
    fn private_addresses_are_refused_in_every_form() {
        let public_only = Egress::default();
        for private in PRIVATE.split_whitespace() {
            assert!(!public_only.allows(ip(private)), "{private}");
        }
        for public in PUBLIC.split_whitespace() {
            assert!(public_only.allows(ip(public)), "{public}");
        }
    }

    /// O-27: the operator opens networks, and only these; an IPv4 network is open in its other forms too.
    #[test]
    fn the_operator_opens_what_is_named_and_nothing_else() {
        let egress = Egress::new(vec!["10.1.0.0/16".parse().unwrap(), "::1".parse().unwrap()]);
        for open in [
            "10.1.2.3",
            "::ffff:10.1.2.3",
            "64:ff9b::a01:203",
            "::1",
            "8.8.8.8",
        ] {
            assert!(egress.allows(ip(open)), "{open}");
        }
        for shut in [
            "10.2.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "::ffff:10.2.0.1",
            "fe80::1",
        ] {
            assert!(!egress.allows(ip(shut)), "{shut}");
        }
    }
}
