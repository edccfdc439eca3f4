//! What a plugin may reach. Pure rules: names are resolved elsewhere, and the address that was checked is the one used.
//!
//! `"task"` means the ports of the task that is looked at. Addresses that name no peer (unspecified, multicast, broadcast) are never
//! reached; link-local addresses and those that clouds serve credentials from only when a pattern names them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::types::probe::Endpoint;

/// The `[grants]` of a manifest. Default: nothing to reach, and for WASI guests clocks and randomness.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is granted by itself, as the manifest has them"
)]
pub(crate) struct Grants {
    pub(crate) network: Vec<Destination>,
    pub(crate) command: bool,
    pub(crate) tls_unverified: bool,
    pub(crate) clock: bool,
    pub(crate) random: bool,
    /// Names of variables of the daemon's environment.
    pub(crate) environment: Vec<String>,
    /// Packages or interfaces that an upgrade may import though the version before it did not.
    pub(crate) imports: Vec<String>,
}

impl Default for Grants {
    fn default() -> Self {
        Grants {
            network: Vec::new(),
            command: false,
            tls_unverified: false,
            clock: true,
            random: true,
            environment: Vec::new(),
            imports: Vec::new(),
        }
    }
}

/// A destination, or a set of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The ports of the request's own task.
    Task,
    /// A host name as written, compared without regard to case.
    Name { host: String, port: Option<u16> },
    /// Addresses with a common beginning.
    Network {
        address: IpAddr,
        bits: u8,
        port: Option<u16>,
    },
}

impl Destination {
    /// `task`, `host:port`, `host:*`, `address:port`, `[v6]:port`, `address/bits`, `address/bits:port`, `[v6/bits]:port`.
    pub(crate) fn parse(text: &str) -> Option<Destination> {
        if text == "task" {
            return Some(Destination::Task);
        }
        let (host, port) = split_port(text)?;
        if let Some((address, bits)) = host.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits = bits.parse().ok().filter(|bits| *bits <= width(address))?;
            return Some(Destination::Network {
                address,
                bits,
                port: port.flatten(),
            });
        }
        let port = port?;
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(Destination::Network {
                address,
                bits: width(address),
                port,
            });
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let named = !host.is_empty() && host.chars().all(plain);
        named.then(|| Destination::Name {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// Whether a network is about this address and port.
    fn covers(&self, ip: IpAddr, to_port: u16) -> bool {
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

/// Host and port; the outer None: malformed, the middle None: no port given, the inner None: `*`.
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

impl Grants {
    /// Whether `ip`, to which `endpoint` resolved, may be reached on its port. `task` holds the task's own endpoints, each with
    /// the addresses that its host resolved to.
    pub(crate) fn allow(&self, endpoint: &Endpoint, ip: IpAddr, task: &[(Endpoint, Vec<IpAddr>)]) -> bool {
        let ip = ip.to_canonical();
        if names_no_peer(ip) {
            return false;
        }
        if is_guarded(ip) {
            return self
                .network
                .iter()
                .any(|it| it.covers(ip, endpoint.port) && names_guarded(it));
        }
        self.network.iter().any(|it| match it {
            Destination::Task => task.iter().any(|(own, ips)| {
                own.port == endpoint.port
                    && (own.host.eq_ignore_ascii_case(&endpoint.host)
                        || ips.iter().any(|own| own.to_canonical() == ip))
            }),
            Destination::Name { host, port } => {
                port.is_none_or(|port| port == endpoint.port) && host.eq_ignore_ascii_case(&endpoint.host)
            }
            Destination::Network { .. } => it.covers(ip, endpoint.port),
        })
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

fn names_no_peer(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Where cloud providers answer with credentials, aside from link-local addresses.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn is_guarded(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || METADATA_V4.contains(&ip),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local()
                || METADATA_V6.contains(&ip)
                || embedded(ip).is_some_and(|v4| is_guarded(v4.into()))
        }
    }
}

/// The IPv4 address that a translator would reach: `64:ff9b::/96` and, at its end, `64:ff9b:1::/48` (NAT64), `2002::/16` (6to4), and
/// the old `::/96`.
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0, 0, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        _ => None,
    }
}

/// A guarded address is named by itself or by a network of nothing else; `0.0.0.0/0` does not name it.
fn names_guarded(it: &Destination) -> bool {
    match it {
        Destination::Network {
            address: IpAddr::V4(address),
            bits,
            ..
        } => *bits == 32 || (*bits >= 16 && address.is_link_local()),
        Destination::Network {
            address: IpAddr::V6(address),
            bits,
            ..
        } => *bits == 128 || (*bits >= 10 && address.is_unicast_link_local()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn patterns() {
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
            // As it is shown it means the same.
            assert_eq!(
                parsed.as_ref().and_then(|it| Destination::parse(&it.to_string())),
                parsed
            );
        }
    }

    #[test]
    fn what_may_be_reached() {
        let task = [(endpoint("agent1", 31000), vec!["10.0.0.5".parse().unwrap()])];
        for (grants, host, port, ip, allowed) in [
            (&["task"][..], "agent1", 31000, "10.0.0.5", true),
            (&["task"], "AGENT1", 31000, "10.0.0.6", true),
            (&["task"], "10.0.0.5", 31000, "10.0.0.5", true),
            (&["task"], "::ffff:10.0.0.5", 31000, "::ffff:10.0.0.5", true),
            (&["task"], "agent1", 31001, "10.0.0.5", false),
            (&["task"], "other", 31000, "10.0.0.7", false),
            (&[], "agent1", 31000, "10.0.0.5", false),
            (&["db:5432"], "db", 5432, "10.9.9.9", true),
            (&["db:5432"], "db", 5433, "10.9.9.9", false),
            (&["db:*"], "db", 5433, "10.9.9.9", true),
            (&["10.0.0.0/8"], "x", 1, "10.255.0.1", true),
            (&["10.0.0.0/8"], "x", 1, "11.0.0.1", false),
            (&["10.0.0.0/8:443"], "x", 80, "10.0.0.1", false),
            (&["[fd00::/8]:443"], "x", 443, "fd12::1", true),
            (&["0.0.0.0/0"], "x", 80, "8.8.8.8", true),
            (&["0.0.0.0/0"], "x", 80, "169.254.169.254", false),
            (&["0.0.0.0/0"], "x", 80, "::ffff:169.254.169.254", false),
            (&["::/0"], "x", 80, "64:ff9b::a9fe:a9fe", false),
            (&["::/0"], "x", 80, "64:ff9b:1::a9fe:a9fe", false),
            (&["::/0"], "x", 80, "::a9fe:a9fe", false),
            (&["::/0"], "x", 80, "2002:a9fe:a9fe::1", false),
            (&["::/0"], "x", 80, "2001:db8::1", true),
            (&["::/0"], "x", 80, "::1", true),
            (&["::/0"], "x", 80, "fe80::1", false),
            (&["::/0"], "x", 80, "fd00:ec2::254", false),
            (&["fd00::/8"], "x", 80, "fd20:ce::254", false),
            (&["[fd00:ec2::23]:80"], "x", 80, "fd00:ec2::23", true),
            (&["168.63.0.0/16"], "x", 80, "168.63.129.16", false),
            (&["0.0.0.0/0"], "x", 80, "100.100.100.200", false),
            (&["meta:80"], "meta", 80, "169.254.169.254", false),
            (&["169.254.169.254:80"], "meta", 80, "169.254.169.254", true),
            (&["169.254.0.0/16"], "meta", 80, "169.254.169.254", true),
            (&["0.0.0.0/0"], "x", 80, "0.0.0.0", false),
            (&["0.0.0.0/0"], "x", 80, "224.0.0.1", false),
        ] {
            let network = grants
                .iter()
                .map(|text| Destination::parse(text).unwrap())
                .collect();
            let grants = Grants {
                network,
                ..Grants::default()
            };
            let ip = ip.parse().unwrap();
            assert_eq!(
                grants.allow(&endpoint(host, port), ip, &task),
                allowed,
                "{grants:?} {host}:{port} {ip}"
            );
        }
    }

    #[test]
    fn the_task_itself_does_not_open_guarded_addresses() {
        let grants = Grants {
            network: vec![Destination::Task],
            ..Grants::default()
        };
        let own = endpoint("169.254.169.254", 80);
        let ip: IpAddr = "169.254.169.254".parse().unwrap();
        assert!(!grants.allow(&own, ip, &[(own.clone(), vec![ip])]));
    }
}
