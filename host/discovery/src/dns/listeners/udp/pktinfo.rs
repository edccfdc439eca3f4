//! The local address of a packet (`IP_PKTINFO`). An answer from a wildcard socket has to be sent
//! from the address that the query was sent to: clients ignore it otherwise, and by default the
//! system picks the address nearest to the client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use nix::ifaddrs::getifaddrs;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, SockaddrIn6, setsockopt, sockopt};

/// An address of this machine, with the interface if it is link-local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalAddr {
    ip: IpAddr,
    interface: u32,
}

/// The maximum number of addresses with separate sockets; the wildcard sockets serve the others.
const MAX_ADDRESSES: usize = 16;

/// The interface addresses that a wildcard listener covers; empty if the system cannot list them.
/// Link-local addresses are left to the wildcard socket, as they need an interface.
pub(super) fn addresses(wildcard: IpAddr, both_families: bool) -> Vec<IpAddr> {
    let interfaces = match getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            tracing::debug!(%error, "cannot list the addresses of this machine");
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for address in interfaces.filter_map(|it| it.address) {
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        let v6 = address.as_sockaddr_in6().map(SockaddrIn6::ip);
        let v6 = v6.filter(|it| !it.is_unicast_link_local()).map(IpAddr::from);
        let is_covered = |it: &IpAddr| both_families || it.is_ipv4() == wildcard.is_ipv4();
        if let Some(ip) = v4.or(v6).filter(is_covered)
            && !found.contains(&ip)
            && found.len() < MAX_ADDRESSES
        {
            found.push(ip);
        }
    }
    found
}

/// Requests the local address of packets, for a socket that will be bound to the wildcard address.
pub(super) fn enable(socket: &impl AsFd, bound_to: SocketAddr) -> io::Result<()> {
    match bound_to.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?,
        IpAddr::V6(ip) if ip.is_unspecified() => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?,
        _ => {}
    }
    Ok(())
}

/// A buffer for the control message.
pub(super) fn cmsg_space() -> Vec<u8> {
    nix::cmsg_space!(in6_pktinfo)
}

impl LocalAddr {
    /// The local address in a control message.
    pub(super) fn from_cmsg(message: &ControlMessageOwned) -> Option<Self> {
        match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(Self {
                ip: Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into(),
                interface: 0,
            }),
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                let interface = if ip.is_unicast_link_local() {
                    info.ipi6_ifindex
                } else {
                    0
                };
                Some(Self {
                    ip: ip.into(),
                    interface,
                })
            }
            _ => None,
        }
    }
}

/// Calls `send` with the control message that sets the source address, and a buffer for it; without
/// an address the system chooses.
pub(super) fn with_source<T>(
    local: Option<LocalAddr>,
    send: impl FnOnce(&[ControlMessage<'_>], Option<Vec<u8>>) -> T,
) -> T {
    let Some(LocalAddr { ip, interface }) = local else {
        return send(&[], None);
    };
    match ip {
        IpAddr::V4(ip) => {
            let none = in_addr { s_addr: 0 };
            let info = in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: in_addr {
                    s_addr: u32::from_ne_bytes(ip.octets()),
                },
                ipi_addr: none,
            };
            let room = nix::cmsg_space!(in_pktinfo);
            send(&[ControlMessage::Ipv4PacketInfo(&info)], Some(room))
        }
        IpAddr::V6(ip) => {
            let info = in6_pktinfo {
                ipi6_addr: in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: interface,
            };
            let room = nix::cmsg_space!(in6_pktinfo);
            send(&[ControlMessage::Ipv6PacketInfo(&info)], Some(room))
        }
    }
}
