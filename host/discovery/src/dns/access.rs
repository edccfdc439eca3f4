//! Whose questions about names of others are forwarded. A server that does so for everybody is soon used to attack third
//! parties, so by default it does so for the networks around it.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::Config;

/// Networks whose questions are forwarded; those of others are REFUSED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recursion {
    v4: Vec<Ipv4Net>,
    v6: Vec<Ipv6Net>,
}

impl Recursion {
    /// These networks and no other, not even this machine. An IPv4 network may be written as IPv6 has it.
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

    /// Whether a client's questions are forwarded.
    pub fn allows(&self, client: IpAddr) -> bool {
        match client.to_canonical() {
            IpAddr::V4(client) => self.v4.iter().any(|network| network.contains(&client)),
            IpAddr::V6(client) => self.v6.iter().any(|network| network.contains(&client)),
        }
    }
}

impl Default for Recursion {
    /// The networks around: [`Config::private_networks`].
    fn default() -> Self {
        Self::new(Config::private_networks())
    }
}

/// The IPv4 network that an IPv6 one stands for (`::ffff:10.0.0.0/104`): clients are looked for by what they are.
fn mapped(network: Ipv6Net) -> Option<Ipv4Net> {
    let bits = network.prefix_len().checked_sub(96)?;
    Ipv4Net::new(network.addr().to_ipv4_mapped()?, bits).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests: a failure is their answer.

    use super::*;

    fn allowed(recursion: &Recursion, clients: &[(&str, bool)]) {
        for (client, allowed) in clients {
            assert_eq!(recursion.allows(client.parse().unwrap()), *allowed, "{client}");
        }
    }

    #[test]
    fn by_default_the_networks_around() {
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
        allowed(&Recursion::default(), &clients);
    }

    #[test]
    fn as_configured() {
        let networks = ["10.1.0.0/16", "2001:db8::/32", "::ffff:192.0.2.0/120"];
        let recursion = Recursion::new(networks.map(|network| network.parse().unwrap()));
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
        allowed(&recursion, &clients);
        allowed(&Recursion::new([]), &[("127.0.0.1", false)]);
        let all = ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap());
        allowed(&Recursion::new(all), &[("8.8.8.8", true), ("2001:db8::1", true)]);
    }
}
