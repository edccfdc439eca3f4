//! The machine's own addresses and resolvers.

use std::net::{IpAddr, SocketAddr};

use super::check::{DNS_PORT, resolver};
use crate::Settings;

/// The file with the system's resolvers.
const RESOLV_CONF: &str = "/etc/resolv.conf";

impl Settings {
    /// Uses the system's resolvers if forwarding is on and none are configured.
    pub(crate) fn with_system_resolvers(mut self) -> Self {
        if self.external_on && self.resolvers.is_empty() {
            self.resolvers = resolvers().iter().map(ToString::to_string).collect();
        }
        self
    }
}

/// The system's resolvers without this machine's own addresses, which would cause a loop.
fn resolvers() -> Vec<SocketAddr> {
    match std::fs::read_to_string(RESOLV_CONF) {
        Ok(text) => parse_resolv_conf(&text, &addresses()),
        Err(error) => {
            tracing::warn!(
                %error,
                "cannot read {RESOLV_CONF} and no resolvers are configured; external names cannot be resolved"
            );
            Vec::new()
        }
    }
}

/// The addresses of the machine's interfaces, loopback included.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let interfaces = match nix::ifaddrs::getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            tracing::warn!(%error, "cannot list this machine's addresses");
            return Vec::new();
        }
    };
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    });
    addresses.collect()
}

/// The resolvers at port 53 in the text of a `resolv.conf`, without addresses in `own_addresses`.
fn parse_resolv_conf(text: &str, own_addresses: &[IpAddr]) -> Vec<SocketAddr> {
    let mut resolvers = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("nameserver"), Some(address)) = (words.next(), words.next()) else {
            continue;
        };
        let Some(resolver) = resolver(address).filter(|resolver| resolver.port() == DNS_PORT) else {
            continue;
        };
        if !own_addresses.contains(&resolver.ip()) && !resolvers.contains(&resolver) {
            resolvers.push(resolver);
        }
    }
    resolvers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_resolvers_exclude_the_machine_itself() {
        let own_addresses = ["127.0.0.1", "10.0.0.7"].map(|ip| ip.parse().expect("an address"));
        for (text, expected) in [
            ("", &[][..]),
            (
                "# nameserver 9.9.9.9\n; nameserver 9.9.9.9\nsearch example.com\n",
                &[],
            ),
            (
                "nameserver 10.0.0.1\nnameserver\t10.0.0.2 # two\n",
                &["10.0.0.1:53", "10.0.0.2:53"],
            ),
            (
                "nameserver 127.0.0.1\nnameserver 10.0.0.7\nnameserver 10.0.0.1",
                &["10.0.0.1:53"],
            ),
            (
                "nameserver 10.0.0.1\nnameserver 10.0.0.1\nnameserver nowhere\nnameserver\n",
                &["10.0.0.1:53"],
            ),
            ("nameserver 2001:db8::1\noptions ndots:1", &["[2001:db8::1]:53"]),
        ] {
            let found: Vec<_> = parse_resolv_conf(text, &own_addresses)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
