//! The network of a client, which shares limits: one client usually controls all of its addresses.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// The prefix lengths of a [`Network`].
const PREFIX_LENGTHS: PrefixLengths = PrefixLengths { v4: 24, v6: 64 };

struct PrefixLengths {
    v4: u8,
    v6: u8,
}

/// The network of an address: /24 for IPv4, /64 for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpNet);

impl Network {
    /// The network of a client. An IPv4 address that is mapped into IPv6 counts as IPv4.
    pub fn of(client: IpAddr) -> Self {
        Self::with(client, &PREFIX_LENGTHS)
    }

    /// The next larger network: /16 for IPv4, /48 for IPv6.
    pub(crate) fn site_of(client: IpAddr) -> Self {
        Self::with(client, &PrefixLengths { v4: 16, v6: 48 })
    }

    fn with(client: IpAddr, lengths: &PrefixLengths) -> Self {
        let client = client.to_canonical();
        let length = if client.is_ipv4() { lengths.v4 } else { lengths.v6 };
        Self(IpNet::new(client, length).map_or(IpNet::from(client), |network| network.trunc()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    #[test]
    fn network_is_a_prefix_of_the_canonical_address() {
        for (client, network, site) in [
            ("192.0.2.7", "192.0.2.0/24", "192.0.0.0/16"),
            ("::ffff:192.0.2.7", "192.0.2.0/24", "192.0.0.0/16"),
            ("127.0.0.1", "127.0.0.0/24", "127.0.0.0/16"),
            ("2001:db8:1:2:3::4", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ] {
            let client = client.parse().unwrap();
            assert_eq!(Network::of(client).to_string(), network);
            assert_eq!(Network::site_of(client).to_string(), site);
        }
    }
}
