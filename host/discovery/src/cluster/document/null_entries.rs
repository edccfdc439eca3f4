//! Lists of a status that contain `null` entries: the others count, as in mesos-dns. An entry of a
//! wrong type makes the whole status invalid.

use serde::{Deserialize, Deserializer};
use transom_cluster::v1::{ContainerStatus, IpAddress, Label, NetworkInfo};

type NullableEntries<T> = Option<Vec<Option<T>>>;

#[derive(Deserialize)]
struct NullableLabel {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
struct Container {
    network_infos: NullableEntries<Network>,
}

#[derive(Deserialize)]
struct Network {
    ip_addresses: NullableEntries<Address>,
    ip_address: Option<String>,
}

#[derive(Deserialize)]
struct Address {
    ip_address: Option<String>,
}

/// The entries of a list that are not null.
fn present<T, U>(list: NullableEntries<T>, read: impl Fn(T) -> U) -> Vec<U> {
    list.into_iter().flatten().flatten().map(read).collect()
}

/// A status's labels.
pub(super) fn labels<'de, D: Deserializer<'de>>(wire: D) -> Result<Option<Vec<Label>>, D::Error> {
    let labels = present(NullableEntries::<NullableLabel>::deserialize(wire)?, |label| {
        Label {
            key: label.key.unwrap_or_default(),
            value: label.value,
        }
    });
    Ok(Some(labels))
}

/// The networks of a status's container.
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
