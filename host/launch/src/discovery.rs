//! The discovery information of a task, for DNS and other programs.

use std::collections::BTreeMap;

use transom_cluster::v1::{self, DiscoveryInfo, Labels, Ports, Visibility};

/// The discovery information of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The name; for DNS the name of the service.
    pub name: String,
    /// The visibility of the task's discovery info.
    pub visibility: Visibility,
    /// Its ports, in order.
    pub ports: Vec<Port>,
}

/// A port on which a task listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The number, on the agent.
    pub number: u16,
    /// Its name.
    pub name: Option<String>,
    /// `tcp`, `udp`, or the protocol above (`http`).
    pub protocol: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

impl From<Discovery> for DiscoveryInfo {
    fn from(discovery: Discovery) -> Self {
        Self {
            visibility: discovery.visibility,
            name: Some(discovery.name),
            ports: Some(Ports {
                ports: discovery.ports.into_iter().map(Into::into).collect(),
            }),
            ..Self::default()
        }
    }
}

impl From<Port> for v1::Port {
    fn from(port: Port) -> Self {
        Self {
            number: u32::from(port.number),
            name: port.name,
            protocol: Some(port.protocol),
            visibility: None,
            labels: labels(port.labels),
        }
    }
}

/// Labels; `None` for an empty map.
pub(crate) fn labels(labels: BTreeMap<String, String>) -> Option<Labels> {
    (!labels.is_empty()).then(|| labels.into_iter().collect())
}
