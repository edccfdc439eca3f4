//! The client of the orchestrator's own API: version, nodes, pods, cordon, drain and removal.
//!
//! [`ClientConfig`] reads the configuration that the server wrote. [`KubeOrchestrator`] is the
//! client, [`Orchestrator`] its interface for the core and its tests.
//!
//! Every request has a timeout, every answer and every list has a maximum size. A list that exceeds
//! its maximum is an error, because a node that is left out would count as lost. The client retries
//! only evictions, up to the deadline of a drain.

pub(crate) mod client_config;
mod drain;
mod error;
mod kube_api;
mod node;
mod object_name;
mod pods;
mod quantity;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use async_trait::async_trait;
use tokio::time::Instant;

pub(crate) use client_config::{ClientConfig, ClientConfigError, Timeouts};
pub(crate) use error::OrchestratorError;
pub(crate) use kube_api::KubeOrchestrator;
#[cfg(test)]
pub(crate) use node::LOOK_UPS;
pub(crate) use node::{Node, NodesByTask};
#[cfg(test)]
pub(crate) use pods::WaitingPod;
pub(crate) use pods::{NodeLoad, Pods};
pub(crate) use quantity::Resources;

/// The orchestrator's API.
#[async_trait]
pub(crate) trait Orchestrator: Debug + Send + Sync {
    /// The version and the nodes of the orchestrator. An API that is not ready is an error.
    async fn observe(&self) -> Result<Observation, OrchestratorError>;

    /// The pods that wait for a node, and the load of each node.
    async fn pods(&self) -> Result<Pods, OrchestratorError>;

    /// Cordons or uncordons a node. Either call removes the mark of a drain. A missing node is no
    /// error.
    async fn cordon(&self, node: &str, cordoned: bool) -> Result<(), OrchestratorError>;

    /// Cordons a node, marks it as being drained, evicts its pods and waits until they have ended, at
    /// most until the deadline.
    ///
    /// Pods of daemon sets, mirror pods and finished pods stay. An eviction that a disruption budget
    /// rejects is tried again.
    async fn drain(&self, node: &str, deadline: Instant) -> Result<Drained, OrchestratorError>;

    /// Removes a node. A missing node is no error.
    async fn remove_node(&self, node: &str) -> Result<(), OrchestratorError>;
}

/// The observed state of the orchestrator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observation {
    /// `gitVersion`, such as `v1.31.5+k3s1`.
    pub(crate) version: String,
    /// The nodes in the order of the API.
    pub(crate) nodes: Vec<Node>,
}

/// The result of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drained {
    /// The number of evictions that the API accepted.
    pub(crate) evicted: usize,
    /// The pods that remained at the deadline, each with the reason; empty: the node is drained.
    pub(crate) remaining: Vec<String>,
}
