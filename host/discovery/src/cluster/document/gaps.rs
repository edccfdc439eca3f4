//! Lists of a status in which entries are missing (`null`): what is there counts, as ever. What is no entry of its list is not
//! mended here; its status is left out.

use serde::{Deserialize, Deserializer};
use transom_cluster::v1::{ContainerStatus, IpAddress, Label, NetworkInfo};

type Gaps<T> = Option<Vec<Option<T>>>;

#[derive(Deserialize)]
struct Tag {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
struct Container {
    network_infos: Gaps<Network>,
}

#[derive(Deserialize)]
struct Network {
    ip_addresses: Gaps<Address>,
    ip_address: Option<String>,
}

#[derive(Deserialize)]
struct Address {
    ip_address: Option<String>,
}

/// What of a list is there.
fn present<T, U>(list: Gaps<T>, read: impl Fn(T) -> U) -> Vec<U> {
    list.into_iter().flatten().flatten().map(read).collect()
}

/// A status's labels.
pub(super) fn labels<'de, D: Deserializer<'de>>(wire: D) -> Result<Option<Vec<Label>>, D::Error> {
    let labels = present(Gaps::<Tag>::deserialize(wire)?, |tag| Label {
        key: tag.key.unwrap_or_default(),
        value: tag.value,
    });
    Ok(Some(labels))
}

/// A status's container, of which its networks are kept.
pub(super) fn container<'de, D: Deserializer<'de>>(wire: D) -> Result<Option<ContainerStatus>, D::Error> {
    let address = |address: Address| IpAddress {
        ip_address: address.ip_address,
        ..IpAddress::default()
    };
    let network = |network: Network| NetworkInfo {
        ip_addresses: present(network.ip_addresses, address),
        ip_address: network.ip_address,
        ..NetworkInfo::default()
    };
    let container = Option::<Container>::deserialize(wire)?;
    Ok(container.map(|container| ContainerStatus {
        network_infos: present(container.network_infos, network),
        ..ContainerStatus::default()
    }))
}
