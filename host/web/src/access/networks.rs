//! Networks that need no credentials.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Whether an address belongs to one of the networks. An IPv4 address that is written as IPv6
/// counts as IPv4.
pub(super) fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// The loopback networks.
pub(crate) fn loopback() -> impl Iterator<Item = IpNet> {
    let v4 = Ipv4Net::new([127, 0, 0, 0].into(), 8).map(IpNet::from);
    let v6 = Ipv6Net::new([0, 0, 0, 0, 0, 0, 0, 1].into(), 128).map(IpNet::from);
    [v4, v6].into_iter().flatten()
}
