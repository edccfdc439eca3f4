//! The clients whose queries for external names are forwarded. An open resolver is soon abused for
//! attacks on third parties, so the default is private networks only.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::settings::private_networks;

/// Networks whose queries are forwarded; others get REFUSED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecursionAcl {
    v4: Vec<Ipv4Net>,
    v6: Vec<Ipv6Net>,
}

impl RecursionAcl {
    /// These networks only, not even this machine. IPv4-mapped IPv6 networks count as IPv4.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match network {
                IpNet::V4(network) => v4.push(network),
                IpNet::V6(network) => match mapped(network) {
                    Some(network) => v4.push(network),
                    None => v6.push(network),
                },
            }
        }
        Self { v4, v6 }
    }

    /// Whether a client's queries are forwarded.
    pub fn allows(&self, client: IpAddr) -> bool {
        match client.to_canonical() {
            IpAddr::V4(client) => self.v4.iter().any(|network| network.contains(&client)),
            IpAddr::V6(client) => self.v6.iter().any(|network| network.contains(&client)),
        }
    }
}

impl Default for RecursionAcl {
    /// [`private_networks`].
    fn default() -> Self {
        Self::new(private_networks())
    }
}

/// The IPv4 network of an IPv4-mapped one (`::ffff:10.0.0.0/104`).
fn mapped(network: Ipv6Net) -> Option<Ipv4Net> {
    let bits = network.prefix_len().checked_sub(96)?;
    Ipv4Net::new(network.addr().to_ipv4_mapped()?, bits).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use super::*;

    fn allowed(acl: &RecursionAcl, clients: &[(&str, bool)]) {
        for (client, allowed) in clients {
            assert_eq!(acl.allows(client.parse().unwrap()), *allowed, "{client}");
        }
    }

    #[test]
    fn default_acl_allows_private_networks_only() {
        let clients = [
            ("127.0.0.1", true),
            ("127.255.255.255", true),
            ("::1", true),
            ("::2", false),
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("172.15.255.255", false),
            ("172.16.0.1", true),
            ("172.31.255.255", true),
            ("172.32.0.0", false),
            ("192.168.1.1", true),
            ("192.169.0.1", false),
            ("169.254.1.1", true),
            ("fe80::1", true),
            ("febf::1", true),
            ("fec0::1", false),
            ("fd00::1", true),
            ("fe00::1", false),
            ("2001:db8::1", false),
            ("8.8.8.8", false),
            ("::ffff:10.0.0.1", true),
            ("::ffff:8.8.8.8", false),
            ("0.0.0.0", false),
        ];
        allowed(&RecursionAcl::default(), &clients);
    }

    #[test]
    fn acl_allows_configured_networks_only() {
        let networks = ["10.1.0.0/16", "2001:db8::/32", "::ffff:192.0.2.0/120"];
        let acl = RecursionAcl::new(networks.map(|network| network.parse().unwrap()));
        let clients = [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("127.0.0.1", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
            ("192.0.2.9", true),
            ("192.0.3.9", false),
        ];
        allowed(&acl, &clients);
        allowed(&RecursionAcl::new([]), &[("127.0.0.1", false)]);
        let all = ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap());
        allowed(
            &RecursionAcl::new(all),
            &[("8.8.8.8", true), ("2001:db8::1", true)],
        );
    }
}
