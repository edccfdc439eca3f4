//! The cluster manager and the way to the orchestrator as traits: the real implementations here,
//! scripted ones in tests.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use transom_cluster::agent::{self, Agents};
use transom_cluster::{Client, FrameworkId, TaskId};
use transom_common::HostPort;
use transom_scheduler::AgentLocation;

use crate::orchestrator::{ClientConfig, ClientConfigError, Orchestrator, Timeouts};

/// The maximum size of a client configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The port of an agent that names none.
const AGENT_PORT: u16 = 5051;

/// The cluster manager.
#[async_trait]
pub(crate) trait Cluster: Debug + Send + Sync {
    /// A file in the sandbox of a task; `None`: it does not exist.
    async fn read_file(
        &self,
        agent: &AgentLocation,
        framework: &FrameworkId,
        task: &TaskId,
        file: &str,
    ) -> transom_cluster::Result<Option<Vec<u8>>>;

    /// Whether the master lists a framework among those that have not ended.
    async fn lists_framework(&self, id: &FrameworkId) -> transom_cluster::Result<bool>;
}

/// A master and its agents.
#[derive(Debug)]
pub(crate) struct ClusterAdapter {
    client: Client,
    agents: Agents,
}

impl ClusterAdapter {
    pub(crate) fn new(client: Client) -> Self {
        let agents = client.agents();
        Self { client, agents }
    }
}

#[async_trait]
impl Cluster for ClusterAdapter {
    async fn read_file(
        &self,
        agent: &AgentLocation,
        framework: &FrameworkId,
        task: &TaskId,
        file: &str,
    ) -> transom_cluster::Result<Option<Vec<u8>>> {
        // The executor of a task that is launched alone has the id of the task.
        let sandbox = agent::sandbox(framework, &task.as_str().into());
        let address = agent.endpoint.clone();
        let address = address.unwrap_or_else(|| HostPort::new(&agent.hostname, AGENT_PORT));
        let path = format!("{sandbox}/{file}");
        match self.agents.read_file(&address, &path, MAX_FILE_BYTES).await {
            Err(transom_cluster::Error::Refused { status: 404, .. }) => Ok(None),
            read => read.map(Some),
        }
    }

    async fn lists_framework(&self, id: &FrameworkId) -> transom_cluster::Result<bool> {
        let listed = self.client.frameworks().await?;
        Ok(listed.iter().any(|framework| framework.id == *id))
    }
}

/// Makes clients of the orchestrator's API.
pub(crate) trait Connector: Debug + Send + Sync {
    /// A client of the API at this address.
    fn connect(
        &self,
        config: &ClientConfig,
        address: &HostPort,
    ) -> Result<Arc<dyn Orchestrator>, ClientConfigError>;
}

/// Connects to real servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KubeConnector;

impl Connector for KubeConnector {
    fn connect(
        &self,
        config: &ClientConfig,
        address: &HostPort,
    ) -> Result<Arc<dyn Orchestrator>, ClientConfigError> {
        Ok(Arc::new(config.connect(address, Timeouts::default())?))
    }
}
