//! Which of this machine's addresses a packet was sent to. On a socket that takes what comes to any of them, an answer is to leave
//! from the one that was asked: who asked does not take it for an answer otherwise, and by itself the system takes the one that
//! is nearest to the client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, setsockopt, sockopt};

/// An address of this machine, and the interface where it has a meaning on that alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Local {
    ip: IpAddr,
    interface: u32,
}

/// Has the system tell it, for a socket that will be bound to all addresses.
pub(super) fn tell(socket: &impl AsFd, bound_to: SocketAddr) -> io::Result<()> {
    match bound_to.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?,
        IpAddr::V6(ip) if ip.is_unspecified() => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?,
        _ => {}
    }
    Ok(())
}

/// Room for what the system tells.
pub(super) fn room() -> Vec<u8> {
    nix::cmsg_space!(in6_pktinfo)
}

impl Local {
    /// What the system told.
    pub(super) fn told(message: &ControlMessageOwned) -> Option<Self> {
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

/// Does something with what tells the system to send from that address, and the room that takes; neither where it is to choose.
pub(super) fn from<T>(
    local: Option<Local>,
    send: impl FnOnce(&[ControlMessage<'_>], Option<Vec<u8>>) -> T,
) -> T {
    let Some(Local { ip, interface }) = local else {
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
