//! Destinations as operators write them: a host with a port, an address, a network, or the probed
//! task.

use std::{fmt, net::IpAddr};

use transom_common::HostPort;

use super::guard::Guard;

/// A destination, or a set of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The ports of the request's own task.
    Task,
    /// A host name as written, compared without regard to case.
    Name {
        /// The name, in lower case.
        host: String,
        /// None: any port.
        port: Option<u16>,
    },
    /// Addresses with a common prefix.
    Network {
        /// An address of the network.
        address: IpAddr,
        /// The length of the common prefix.
        bits: u8,
        /// None: any port.
        port: Option<u16>,
    },
}

impl Destination {
    /// `task`, `host:port`, `host:*`, `address:port`, `[v6]:port`, `address/bits`,
    /// `address/bits:port`, `[v6/bits]:port`.
    pub fn parse(text: &str) -> Option<Destination> {
        if text == "task" {
            return Some(Destination::Task);
        }
        let (host, port) = split_port(text)?;
        if let Some((address, bits)) = host.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits = bits.parse().ok().filter(|bits| *bits <= width(address))?;
            return Some(Destination::network(address, bits, port.flatten()));
        }
        let port = port?;
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(Destination::network(address, width(address), port));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let named = !host.is_empty() && host.chars().all(plain);
        named.then(|| Destination::Name {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// Normalizes a network: `::ffff:10.0.0.0/104` becomes `10.0.0.0/8`, because addresses are
    /// compared in canonical form.
    fn network(address: IpAddr, bits: u8, port: Option<u16>) -> Destination {
        match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(v4)) if bits >= 96 => Destination::Network {
                address: v4.into(),
                bits: bits - 96,
                port,
            },
            _ => Destination::Network { address, bits, port },
        }
    }

    /// Whether this destination names exactly `ip`, a guarded address to which `endpoint` has
    /// resolved.
    pub fn names(&self, endpoint: &HostPort, ip: IpAddr, guard: &Guard) -> bool {
        let ip = ip.to_canonical();
        match self {
            Destination::Task => false,
            // `localhost` always resolves to loopback; the addresses of other names may change.
            Destination::Name { host, port } => {
                let named = port.is_none_or(|port| port == endpoint.port);
                let by_port = port.is_some() || *guard == Guard::Loopback;
                is_localhost(host)
                    && host.eq_ignore_ascii_case(&endpoint.host)
                    && ip.is_loopback()
                    && named
                    && by_port
            }
            Destination::Network { address, bits, port } => {
                let exact = *bits == width(*address);
                self.covers(ip, endpoint.port)
                    && match guard {
                        Guard::Daemon(_) => exact && port.is_some(),
                        Guard::Loopback => exact || is_network_of_loopback(*address, *bits),
                        Guard::LinkLocal => exact || is_network_of_link_local(*address, *bits),
                        Guard::Metadata => exact,
                    }
            }
        }
    }

    /// Whether this is a network that contains the address, for this port.
    pub fn covers(&self, ip: IpAddr, to_port: u16) -> bool {
        match self {
            Destination::Network { address, bits, port } => {
                port.is_none_or(|port| port == to_port) && same_network(*address, ip, *bits)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = |port: Option<u16>| port.map_or_else(|| "*".to_owned(), |port| port.to_string());
        match self {
            Destination::Task => f.write_str("task"),
            Destination::Name { host, port: to } => write!(f, "{host}:{}", port(*to)),
            Destination::Network {
                address,
                bits,
                port: to,
            } => {
                let network = if *bits == width(*address) {
                    address.to_string()
                } else {
                    format!("{address}/{bits}")
                };
                match (to, address.is_ipv4(), *bits == width(*address)) {
                    (None, _, false) => f.write_str(&network),
                    (_, true, _) => write!(f, "{network}:{}", port(*to)),
                    (_, false, _) => write!(f, "[{network}]:{}", port(*to)),
                }
            }
        }
    }
}

/// Splits host and port. The outer `None`: malformed; the middle `None`: no port; the inner `None`:
/// `*`.
#[allow(
    clippy::option_option,
    reason = "no port and any port are different things here"
)]
fn split_port(text: &str) -> Option<(&str, Option<Option<u16>>)> {
    let port = |text: &str| match text {
        "*" => Some(None),
        digits => digits.parse().ok().filter(|port| *port > 0).map(Some),
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(text) => Some((host, Some(port(text)?))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    if text.matches(':').count() > 1 {
        return Some((text, None));
    }
    match text.split_once(':') {
        Some((host, text)) => Some((host, Some(port(text)?))),
        None => Some((text, None)),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn same_network(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    match (a.to_canonical(), b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let shift = 32 - u32::from(bits.min(32));
            (a.to_bits() ^ b.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let shift = 128 - u32::from(bits.min(128));
            (a.to_bits() ^ b.to_bits()).checked_shr(shift).unwrap_or(0) == 0
        }
        _ => false,
    }
}

fn is_network_of_loopback(address: IpAddr, bits: u8) -> bool {
    address.is_loopback() && bits >= if address.is_ipv4() { 8 } else { 128 }
}

fn is_network_of_link_local(address: IpAddr, bits: u8) -> bool {
    match address {
        IpAddr::V4(address) => bits >= 16 && address.is_link_local(),
        IpAddr::V6(address) => bits >= 10 && address.is_unicast_link_local(),
    }
}

/// RFC 6761: this name always means loopback.
fn is_localhost(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_patterns_are_parsed_and_invalid_ones_rejected() {
        for (text, fine) in [
            ("task", true),
            ("example.com:80", true),
            ("example.com:*", true),
            ("10.1.2.3:80", true),
            ("[::1]:80", true),
            ("10.0.0.0/8", true),
            ("10.0.0.0/8:443", true),
            ("fd00::/8", true),
            ("[fd00::/8]:443", true),
            ("example.com", false),
            ("10.0.0.0/33", false),
            ("example.com:0", false),
            ("example.com:x", false),
            ("exa mple:80", false),
            ("*:80", false),
            ("", false),
        ] {
            let parsed = Destination::parse(text);
            assert_eq!(parsed.is_some(), fine, "{text}");
            // The displayed form parses to the same destination.
            assert_eq!(
                parsed.as_ref().and_then(|it| Destination::parse(&it.to_string())),
                parsed
            );
        }
    }
}
