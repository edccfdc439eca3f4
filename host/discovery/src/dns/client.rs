//! Who asks.

use std::net::IpAddr;

/// How a packet came, and its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// Who asks, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) ip: IpAddr,
    pub(super) over: Transport,
}
