//! Guarded addresses, which only a destination that names exactly them allows: the daemon's own
//! ports, loopback, link-local and the metadata addresses of clouds.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Why an address is guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A port that belongs to the daemon, with its name: a port of the daemon, its store, its
    /// master. Only a destination with the exact address, or `localhost`, and the port allows it.
    Daemon(String),
    /// Loopback.
    Loopback,
    /// Link-local.
    LinkLocal,
    /// Addresses at which clouds serve credentials.
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

/// Whether an address cannot be the peer of a connection. Some systems treat `0.0.0.0` as loopback.
pub fn names_no_peer(ip: IpAddr) -> bool {
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
const METADATA_V4: &[Ipv4Addr] = &[
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

impl Guard {
    /// The guard of an address, regardless of the port.
    pub fn of_address(ip: IpAddr) -> Option<Guard> {
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

/// The IPv4 address to which a translator would forward: `64:ff9b::/96` and, at its end,
/// `64:ff9b:1::/48` (NAT64), `2002::/16` (6to4), `::ffff:0:0:0/96` (SIIT), and the old `::/96`.
pub fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0, 0, 0, 0, 0xffff | 0, 0, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        _ => None,
    }
}
