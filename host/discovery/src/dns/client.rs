//! The client of a query.

use std::net::IpAddr;

/// The transport of a query and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A packet.
    Udp = 0,
    /// A connection, encrypted or not.
    Tcp = 1,
}

impl Transport {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// The client of a query, and the transport that it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) ip: IpAddr,
    pub(super) over: Transport,
}
