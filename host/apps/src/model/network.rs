//! The networks of an app.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network that the tasks of an app join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Network {
    /// The name of a container network; other modes have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) mode: NetworkMode,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

impl Network {
    /// A network without name and labels.
    pub(crate) fn new(mode: NetworkMode) -> Self {
        Self {
            name: None,
            mode,
            labels: BTreeMap::new(),
        }
    }
}

/// The mode of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum NetworkMode {
    /// The app uses the network of its agent.
    #[serde(rename = "host")]
    Host,
    /// A bridge on the agent; ports of the agent lead to those of the container.
    #[serde(rename = "container/bridge")]
    Bridge,
    /// A network with an address for each container.
    #[serde(rename = "container")]
    Container,
}
