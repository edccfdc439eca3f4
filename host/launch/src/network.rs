//! The network of a container, and its port mappings.

use std::collections::BTreeMap;

use transom_cluster::v1::{self, DockerNetwork, NetworkInfo, NetworkPortMapping};

use crate::discovery::labels;

/// The network of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// The network of the agent.
    #[default]
    Host,
    /// No network except loopback.
    None,
    /// A bridge on the agent. `name`: the CNI network that the cluster manager's own containerizer
    /// uses as the bridge.
    Bridge {
        /// The name of the network.
        name: Option<String>,
        /// Labels for the network's plugin.
        labels: BTreeMap<String, String>,
    },
    /// Container networks, of CNI or of Docker.
    Container(Vec<ContainerNetwork>),
}

/// A container network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerNetwork {
    /// Its name.
    pub name: String,
    /// Labels for the network's plugin.
    pub labels: BTreeMap<String, String>,
}

impl From<String> for ContainerNetwork {
    fn from(name: String) -> Self {
        Self {
            name,
            labels: BTreeMap::new(),
        }
    }
}

/// A mapping of a port of the agent to a port of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// The port of the agent.
    pub host_port: u16,
    /// The port within the container.
    pub container_port: u16,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The container networks that it applies to, by name; empty: all.
    pub networks: Vec<String>,
}

impl Network {
    /// Whether a container has its own ports in this network.
    pub(crate) fn has_own_ports(&self) -> bool {
        matches!(self, Self::Bridge { .. } | Self::Container(_))
    }

    /// The network mode of Docker's containerizer.
    pub(crate) fn docker_mode(&self) -> DockerNetwork {
        match self {
            Self::Host => DockerNetwork::Host,
            Self::None => DockerNetwork::None,
            Self::Bridge { .. } => DockerNetwork::Bridge,
            Self::Container(_) => DockerNetwork::User,
        }
    }

    /// The messages for the named networks, each with the mappings that apply to it.
    pub(crate) fn into_infos(self, mappings: &[PortMapping]) -> Vec<NetworkInfo> {
        let networks = match self {
            Self::Host | Self::None => Vec::new(),
            Self::Bridge { name, labels } => {
                let network = name.map(|name| ContainerNetwork { name, labels });
                network.into_iter().collect()
            }
            Self::Container(networks) => networks,
        };
        let info = |network: ContainerNetwork| {
            let applies = |mapping: &&PortMapping| {
                mapping.networks.is_empty() || mapping.networks.contains(&network.name)
            };
            let mappings = mappings.iter().filter(applies).cloned();
            NetworkInfo {
                port_mappings: mappings.map(Into::into).collect(),
                labels: labels(network.labels.clone()),
                name: Some(network.name),
                ..NetworkInfo::default()
            }
        };
        networks.into_iter().map(info).collect()
    }
}

impl From<PortMapping> for v1::PortMapping {
    fn from(mapping: PortMapping) -> Self {
        Self {
            host_port: u32::from(mapping.host_port),
            container_port: u32::from(mapping.container_port),
            protocol: Some(mapping.protocol),
        }
    }
}

impl From<PortMapping> for NetworkPortMapping {
    fn from(mapping: PortMapping) -> Self {
        Self {
            host_port: u32::from(mapping.host_port),
            container_port: u32::from(mapping.container_port),
            protocol: Some(mapping.protocol),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Container, Containerizer};
    use serde_json::{Value, json};

    fn in_network(containerizer: Containerizer, network: Network) -> Value {
        let container = Container {
            network,
            port_mappings: vec![PortMapping {
                host_port: 31000,
                container_port: 80,
                protocol: "tcp".to_owned(),
                networks: Vec::new(),
            }],
            ..Container::new(containerizer)
        };
        serde_json::to_value(v1::ContainerInfo::from(container)).unwrap()
    }

    fn container(names: &[&str]) -> Network {
        let network = |name: &&str| ContainerNetwork::from((*name).to_owned());
        Network::Container(names.iter().map(network).collect())
    }

    fn bridge(name: Option<&str>) -> Network {
        Network::Bridge {
            name: name.map(str::to_owned),
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn docker_gets_the_mode_and_the_mappings() {
        let mapping = json!([{"host_port": 31000, "container_port": 80, "protocol": "tcp"}]);
        for (network, mode, mappings, infos) in [
            (Network::Host, "HOST", json!(null), json!(null)),
            (Network::None, "NONE", json!(null), json!(null)),
            (bridge(None), "BRIDGE", mapping.clone(), json!(null)),
            (bridge(Some("")), "BRIDGE", mapping.clone(), json!([{"name": ""}])),
            (container(&["weave"]), "USER", mapping, json!([{"name": "weave"}])),
        ] {
            let shown = format!("{network:?}");
            let info = in_network(Containerizer::docker(), network);
            assert_eq!(info["docker"]["network"], mode, "{shown}");
            assert_eq!(info["docker"]["port_mappings"], mappings, "{shown}");
            assert_eq!(info["network_infos"], infos, "{shown}");
        }
    }

    #[test]
    fn labels_and_mappings_are_those_of_each_network() {
        let mapping = |networks: &[&str]| PortMapping {
            host_port: 31000,
            container_port: 80,
            protocol: "tcp".to_owned(),
            networks: networks.iter().map(|name| (*name).to_owned()).collect(),
        };
        let labelled = ContainerNetwork {
            name: "a".to_owned(),
            labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        };
        let network = Network::Container(vec![labelled, ContainerNetwork::from("b".to_owned())]);
        for (networks, of_a, of_b) in [(&["a"][..], 1, 0), (&["b"], 0, 1), (&[], 1, 1)] {
            let infos = network.clone().into_infos(&[mapping(networks)]);
            let counts: Vec<usize> = infos.iter().map(|info| info.port_mappings.len()).collect();
            assert_eq!(counts, [of_a, of_b], "{networks:?}");
            assert_eq!(
                infos[0].labels.as_ref().and_then(|labels| labels.get("k")),
                Some("v")
            );
            assert_eq!(infos[1].labels, None);
        }
    }

    #[test]
    fn mesos_gets_the_mappings_in_each_named_network() {
        let with = |name: &str| json!({"name": name, "port_mappings": [{"host_port": 31000, "container_port": 80, "protocol": "tcp"}]});
        for (network, infos) in [
            (Network::Host, json!(null)),
            (Network::None, json!(null)),
            (bridge(None), json!(null)),
            (bridge(Some("mesos-bridge")), json!([with("mesos-bridge")])),
            (container(&["a", "b"]), json!([with("a"), with("b")])),
        ] {
            let shown = format!("{network:?}");
            let info = in_network(Containerizer::Mesos, network);
            assert_eq!(info["network_infos"], infos, "{shown}");
        }
    }
}
