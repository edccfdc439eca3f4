//! The ports of an app: of its agent in host networking, otherwise of its container.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A port that each instance gets on its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PortDefinition {
    /// The service port; with `requirePorts` also the port on the agent, where 0 means any.
    pub(crate) port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) protocol: Protocol,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

impl PortDefinition {
    /// The port of an app that names none.
    pub(crate) fn unnamed_default() -> Self {
        Self {
            port: 0,
            name: Some(DEFAULT_NAME.to_owned()),
            protocol: Protocol::Tcp,
            labels: BTreeMap::new(),
        }
    }
}

/// The default name of a port.
pub(crate) const DEFAULT_NAME: &str = "default";

/// A port of a container, and the port of the agent that leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortMapping {
    /// The port in the container; 0: the same as the port of the agent.
    pub(crate) container_port: u16,
    /// The port of the agent; 0: any, absent: none, the container is reached at its own address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_port: Option<u16>,
    /// The service port.
    pub(crate) service_port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) protocol: Protocol,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// The networks that the mapping applies to; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) network_names: Vec<String>,
}

impl PortMapping {
    /// A mapping of any port, with this name.
    pub(crate) fn any(name: Option<&str>) -> Self {
        Self {
            container_port: 0,
            host_port: None,
            service_port: 0,
            name: name.map(str::to_owned),
            protocol: Protocol::Tcp,
            labels: BTreeMap::new(),
            network_names: Vec::new(),
        }
    }
}

/// Transport protocols of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Protocol {
    #[serde(rename = "tcp")]
    Tcp,
    #[serde(rename = "udp")]
    Udp,
    /// Both. Either order is accepted, and this one is shown.
    #[serde(rename = "udp,tcp")]
    Both,
}

impl Protocol {
    /// Each protocol by its name.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &["tcp"],
            Self::Udp => &["udp"],
            Self::Both => &["udp", "tcp"],
        }
    }
}
