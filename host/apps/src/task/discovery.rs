//! The discovery information about the ports of a task, for other programs.

use std::collections::BTreeMap;

use transom_cluster::v1::Visibility;
use transom_launch::{Discovery, Port};

use super::ports::InstancePort;
use crate::ids::SpecId;
use crate::model::Network;

/// Upstream's label for the side on which a port is reached: `host` or `container`.
const SCOPE: &str = "network-scope";
/// Upstream's label for the network in which a container's port is reached.
const NETWORK: &str = "network-name";

/// The discovery info of a task of this app or pod with these ports: one entry for each protocol,
/// and for each network in which a container is reached at its own address.
pub(super) fn discovery(id: &SpecId, networks: &[Network], ports: &[InstancePort<'_>]) -> Discovery {
    Discovery {
        name: id.task_name(),
        visibility: Visibility::Framework,
        ports: ports.iter().flat_map(|port| entries(networks, port)).collect(),
    }
}

fn entries(networks: &[Network], port: &InstancePort<'_>) -> Vec<Port> {
    let entry = |protocol: &str, labels: &[(&str, &str)]| {
        let mut all: BTreeMap<String, String> = port.labels.clone();
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        all.extend(labels);
        Port {
            number: port.client_port(),
            name: port.name.map(str::to_owned),
            protocol: protocol.to_owned(),
            labels: all,
        }
    };
    let mut ports = Vec::new();
    for protocol in port.protocol.names() {
        match (port.host, port.container) {
            // In host networking the label would always be the same, so it is omitted.
            (_, None) => ports.push(entry(protocol, &[])),
            (Some(_), Some(_)) => ports.push(entry(protocol, &[(SCOPE, "host")])),
            (None, Some(_)) => {
                let joined = networks.iter().filter_map(|network| network.name.as_deref());
                let networks: Vec<&str> = match port.networks {
                    [] => joined.collect(),
                    named => named.iter().map(String::as_str).collect(),
                };
                let labels = |network| [(SCOPE, "container"), (NETWORK, network)];
                ports.extend(networks.iter().map(|network| entry(protocol, &labels(network))));
            }
        }
    }
    ports
}
