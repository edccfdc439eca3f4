//! The grants of a plugin. Pure rules: names are resolved elsewhere, and the host connects to the
//! address that was checked.
//!
//! `"task"` grants the ports of the probed task. A guarded address ([`Guard`]) needs a grant that
//! names exactly that address; a network that contains it is not enough. Unspecified, multicast and
//! broadcast addresses are never reachable.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::types::probe::Endpoint;

/// Why an address is reached only by a destination that names exactly it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A port that belongs to the daemon, with its name: an own port, its store, its master. Opened
    /// by the exact address with the port, and by nothing else.
    Daemon(String),
    Loopback,
    LinkLocal,
    /// Where clouds serve credentials.
    Metadata,
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guard::Daemon(what) => f.write_str(what),
            Guard::Loopback => f.write_str("a loopback address"),
            Guard::LinkLocal => f.write_str("a link-local address"),
            Guard::Metadata => f.write_str("a metadata address of a cloud"),
        }
    }
}

/// Why a destination is not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No grant is about it.
    NotGranted,
    /// A grant may contain it, but none names exactly it.
    Guarded(Guard),
    /// The address names no peer.
    NoPeer,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotGranted => f.write_str("no entry of grants.network allows it"),
            Refusal::Guarded(guard @ Guard::Daemon(_)) => write!(
                f,
                "it is {guard}, which only an entry of grants.network with exactly its address and port allows"
            ),
            Refusal::Guarded(guard) => write!(
                f,
                "it is {guard}, which only an entry of grants.network for exactly that address or network allows"
            ),
            Refusal::NoPeer => f.write_str("it is an unspecified, multicast or broadcast address"),
        }
    }
}

/// The `[grants]` of a manifest. Default: nothing to reach, and for WASI guests clocks and
/// randomness.
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
    /// `task`, `host:port`, `host:*`, `address:port`, `[v6]:port`, `address/bits`,
    /// `address/bits:port`, `[v6/bits]:port`.
    pub(crate) fn parse(text: &str) -> Option<Destination> {
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

    /// `::ffff:10.0.0.0/104` is `10.0.0.0/8`: addresses are compared in that form.
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

    /// Whether this names exactly a guarded address, to which `endpoint` resolved.
    pub(crate) fn names(&self, endpoint: &Endpoint, ip: IpAddr, guard: &Guard) -> bool {
        let ip = ip.to_canonical();
        match self {
            Destination::Task => false,
            // `localhost` means loopback wherever it is resolved; other names may mean anything
            // tomorrow.
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
    /// Whether `ip`, to which `endpoint` resolved, may be reached on its port. `guard` is what
    /// guards that address and port, if anything does. `task` holds the task's own endpoints, each
    /// with the addresses that its host resolved to.
    pub(crate) fn judge(
        &self,
        endpoint: &Endpoint,
        ip: IpAddr,
        guard: Option<&Guard>,
        task: &[(Endpoint, Vec<IpAddr>)],
    ) -> Result<(), Refusal> {
        let ip = ip.to_canonical();
        if names_no_peer(ip) {
            return Err(Refusal::NoPeer);
        }
        let is_own = || {
            task.iter().any(|(own, ips)| {
                own.port == endpoint.port
                    && (own.host.eq_ignore_ascii_case(&endpoint.host)
                        || ips.iter().any(|own| own.to_canonical() == ip))
            })
        };
        let allowed = |it: &Destination| match (guard, it) {
            // An agent may be on this machine and be known by a loopback address; the daemon's own
            // ports are no task's.
            (None | Some(Guard::Loopback), Destination::Task) => is_own(),
            (Some(guard), _) => it.names(endpoint, ip, guard),
            (None, Destination::Name { host, port }) => {
                port.is_none_or(|port| port == endpoint.port) && host.eq_ignore_ascii_case(&endpoint.host)
            }
            (None, Destination::Network { .. }) => it.covers(ip, endpoint.port),
        };
        if self.network.iter().any(allowed) {
            Ok(())
        } else {
            Err(guard.cloned().map_or(Refusal::NotGranted, Refusal::Guarded))
        }
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

/// Addresses that no connection goes to. Some systems take `0.0.0.0` for loopback.
pub(crate) fn names_no_peer(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.octets()[0] == 0 || ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => {
            ip.is_unspecified()
                || ip.is_multicast()
                || (!ip.is_loopback() && embedded(ip).is_some_and(|v4| names_no_peer(v4.into())))
        }
    }
}

/// Metadata addresses of cloud providers outside link-local.
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

impl Guard {
    /// The guard of an address, regardless of the port.
    pub(crate) fn of_address(ip: IpAddr) -> Option<Guard> {
        match ip.to_canonical() {
            ip if ip.is_loopback() => Some(Guard::Loopback),
            IpAddr::V4(ip) if ip.is_link_local() => Some(Guard::LinkLocal),
            IpAddr::V4(ip) => METADATA_V4.contains(&ip).then_some(Guard::Metadata),
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(Guard::LinkLocal),
            IpAddr::V6(ip) if METADATA_V6.contains(&ip) => Some(Guard::Metadata),
            IpAddr::V6(ip) => embedded(ip).and_then(|v4| Guard::of_address(v4.into())),
        }
    }
}

/// The IPv4 address that a translator would reach: `64:ff9b::/96` and, at its end, `64:ff9b:1::/48`
/// (NAT64), `2002::/16` (6to4), `::ffff:0:0:0/96` (SIIT), and the old `::/96`.
pub(crate) fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0, 0, 0, 0, 0xffff | 0, 0, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        _ => None,
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
    fn grants_allow_and_deny_destinations() {
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
            (&["::/0"], "x", 80, "::1", false),
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
            (&["0.0.0.0/0"], "x", 80, "0.0.0.1", false),
            (&["0.0.0.0:80"], "x", 80, "0.0.0.0", false),
            (&["0.0.0.0/0"], "x", 80, "224.0.0.1", false),
            (&["0.0.0.0/0"], "x", 80, "255.255.255.255", false),
            (&["::/0"], "x", 80, "::", false),
            (&["::/0"], "x", 80, "ff02::1", false),
            (&["::/0"], "x", 80, "64:ff9b::", false),
            // Loopback: only what names it, in whatever form it comes.
            (&["0.0.0.0/0"], "x", 80, "127.0.0.1", false),
            (&["0.0.0.0/0"], "x", 80, "127.9.9.9", false),
            (&["0.0.0.0/0"], "x", 80, "::ffff:127.0.0.1", false),
            (&["0.0.0.0/0", "::/0"], "127.0.0.1", 80, "127.0.0.1", false),
            (&["0.0.0.0/1"], "x", 80, "127.0.0.1", false),
            (&["126.0.0.0/7"], "x", 80, "127.0.0.1", false),
            (&["::/0"], "x", 80, "64:ff9b::7f00:1", false),
            (&["::/0"], "x", 80, "::7f00:1", false),
            (&["::/0"], "x", 80, "::ffff:0:127.0.0.1", false),
            (&["::/0"], "x", 80, "2002:7f00:1::", false),
            (&["::/127"], "x", 80, "::1", false),
            (&["x:80"], "x", 80, "127.0.0.1", false),
            (&["x:*"], "x", 80, "::1", false),
            (&["127.0.0.0/8"], "x", 80, "127.9.9.9", true),
            (&["127.0.0.0/8:80"], "x", 81, "127.0.0.1", false),
            (&["127.0.0.0/16"], "x", 80, "127.0.0.1", true),
            (&["127.0.0.0/16"], "x", 80, "127.1.0.1", false),
            (&["127.0.0.1:80"], "x", 80, "127.0.0.1", true),
            (&["127.0.0.1:80"], "x", 80, "::ffff:127.0.0.1", true),
            (&["127.0.0.1:*"], "x", 80, "127.0.0.1", true),
            (&["[::ffff:127.0.0.1]:80"], "x", 80, "127.0.0.1", true),
            (&["::ffff:127.0.0.0/104"], "x", 80, "127.0.0.1", true),
            (&["::ffff:0.0.0.0/96"], "x", 80, "127.0.0.1", false),
            (&["::ffff:0.0.0.0/96"], "x", 80, "10.0.0.1", true),
            (&["[::1]:80"], "x", 80, "::1", true),
            (&["::1/128"], "x", 80, "::1", true),
            (&["[::1]:80"], "x", 80, "127.0.0.1", false),
            (&["localhost:80"], "localhost", 80, "127.0.0.1", true),
            (&["localhost:80"], "localhost", 80, "::1", true),
            (&["localhost:80"], "localhost", 80, "169.254.169.254", false),
            (&["localhost:80"], "127.0.0.1", 80, "127.0.0.1", false),
            (&["localhost:80"], "localhost.example", 80, "127.0.0.1", false),
            (&["169.254.0.0/15"], "x", 80, "169.254.1.1", false),
            (&["fe80::/10"], "x", 80, "fe80::1", true),
            (&["fe80::/9"], "x", 80, "fe80::1", false),
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
            let guard = Guard::of_address(ip);
            let judged = grants.judge(&endpoint(host, port), ip, guard.as_ref(), &task);
            assert_eq!(
                judged.is_ok(),
                allowed,
                "{grants:?} {host}:{port} {ip} {judged:?}"
            );
        }
    }

    fn granted(patterns: &[&str]) -> Grants {
        Grants {
            network: patterns
                .iter()
                .map(|text| Destination::parse(text).unwrap())
                .collect(),
            ..Grants::default()
        }
    }

    #[test]
    fn a_port_of_the_daemon_is_opened_by_its_exact_address_and_port_alone() {
        let guard = Guard::Daemon("the admin port of this daemon".to_owned());
        for (pattern, host, ip, allowed) in [
            ("0.0.0.0/0", "x", "10.0.0.1", false),
            ("0.0.0.0/0:8081", "x", "10.0.0.1", false),
            ("10.0.0.0/31", "x", "10.0.0.1", false),
            ("10.0.0.1:*", "x", "10.0.0.1", false),
            ("10.0.0.1/32", "x", "10.0.0.1", false),
            ("x:8081", "x", "10.0.0.1", false),
            ("10.0.0.1:8082", "x", "10.0.0.1", false),
            ("10.0.0.2:8081", "x", "10.0.0.1", false),
            ("10.0.0.1:8081", "x", "10.0.0.1", true),
            ("10.0.0.1/32:8081", "x", "10.0.0.1", true),
            ("10.0.0.1:8081", "x", "::ffff:10.0.0.1", true),
            ("127.0.0.0/8", "x", "127.0.0.1", false),
            ("127.0.0.0/8:8081", "x", "127.0.0.1", false),
            ("127.0.0.1:*", "x", "127.0.0.1", false),
            ("127.0.0.1:8081", "x", "127.0.0.1", true),
            ("localhost:*", "localhost", "127.0.0.1", false),
            ("localhost:8081", "localhost", "127.0.0.1", true),
            ("localhost:8081", "localhost", "10.0.0.1", false),
        ] {
            let to = endpoint(host, 8081);
            let ip: IpAddr = ip.parse().unwrap();
            // Not even where the task claims the port as its own.
            for patterns in [&[pattern][..], &[pattern, "task"]] {
                let task = [(to.clone(), vec![ip])];
                let judged = granted(patterns).judge(&to, ip, Some(&guard), &task);
                let expected = if allowed {
                    Ok(())
                } else {
                    Err(Refusal::Guarded(guard.clone()))
                };
                assert_eq!(judged, expected, "{patterns:?} {host} {ip}");
            }
        }
    }

    #[test]
    fn the_task_is_reached_where_its_agent_is_on_loopback() {
        let own = endpoint("agent1", 31000);
        let ip: IpAddr = "127.0.0.2".parse().unwrap();
        let task = [(own.clone(), vec![ip])];
        let grants = granted(&["task"]);
        for (host, port, ip, allowed) in [
            ("agent1", 31000, "127.0.0.2", true),
            ("127.0.0.2", 31000, "127.0.0.2", true),
            ("127.0.0.2", 31001, "127.0.0.2", false),
            ("127.0.0.1", 31000, "127.0.0.1", false),
            ("localhost", 31000, "127.0.0.1", false),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            let guard = Guard::of_address(ip);
            let judged = grants.judge(&endpoint(host, port), ip, guard.as_ref(), &task);
            assert_eq!(judged.is_ok(), allowed, "{host}:{port} {judged:?}");
        }
    }

    #[test]
    fn a_refusal_says_why() {
        let to = endpoint("x", 80);
        let grants = granted(&["0.0.0.0/0"]);
        let why = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            let guard = Guard::of_address(ip);
            let judged = grants.judge(&to, ip, guard.as_ref(), &[]);
            judged.unwrap_err().to_string()
        };
        assert!(why("127.0.0.1").contains("a loopback address, which only"));
        assert!(why("169.254.1.1").contains("a link-local address, which only"));
        assert!(why("100.100.100.200").contains("a metadata address"));
        assert!(why("0.0.0.0").contains("unspecified"));
        assert!(why("2001:db8::1").contains("no entry of grants.network"));
    }

    #[test]
    fn the_task_itself_does_not_open_guarded_addresses() {
        let grants = Grants {
            network: vec![Destination::Task],
            ..Grants::default()
        };
        let own = endpoint("169.254.169.254", 80);
        let ip: IpAddr = "169.254.169.254".parse().unwrap();
        let judged = grants.judge(&own, ip, Some(&Guard::LinkLocal), &[(own.clone(), vec![ip])]);
        assert_eq!(judged, Err(Refusal::Guarded(Guard::LinkLocal)));
    }
}
