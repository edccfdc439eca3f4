//! The cluster manager and the connection to the orchestrator as traits, with their real
//! implementations. Tests have scripted ones.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use transom_cluster::agent::{self, Agents, FileBytes};
use transom_cluster::{Client, FrameworkId, TaskId};
use transom_common::HostPort;
use transom_scheduler::AgentLocation;

use crate::orchestrator::{ClientConfig, ClientConfigError, Orchestrator, Timeouts};

/// The maximum size of a client configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The port of an agent whose record contains none.
const AGENT_PORT: u16 = 5051;

/// A file in the sandbox of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SandboxFile<'a> {
    pub(crate) agent: &'a AgentLocation,
    pub(crate) framework: &'a FrameworkId,
    pub(crate) task: &'a TaskId,
    /// Relative to the sandbox.
    pub(crate) path: &'a str,
}

/// The cluster manager.
#[async_trait]
pub(crate) trait Cluster: Debug + Send + Sync {
    /// Reads a whole file; `None`: it does not exist.
    async fn read_file(&self, file: SandboxFile<'_>) -> transom_cluster::Result<Option<Vec<u8>>>;

    /// Reads a piece of a file, with the size of the file; `None`: it does not exist. A piece that is
    /// shorter than `length` does not mean the end of the file.
    async fn read_bytes(
        &self,
        file: SandboxFile<'_>,
        offset: u64,
        length: u64,
    ) -> transom_cluster::Result<Option<FileBytes>>;

    /// Whether the master lists a framework among those that have not ended.
    async fn lists_framework(&self, id: &FrameworkId) -> transom_cluster::Result<bool>;
}

/// The real cluster manager: a master and its agents.
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
    async fn read_file(&self, file: SandboxFile<'_>) -> transom_cluster::Result<Option<Vec<u8>>> {
        let (address, path) = file.location();
        none_if_missing(self.agents.read_file(&address, &path, MAX_FILE_BYTES).await)
    }

    async fn read_bytes(
        &self,
        file: SandboxFile<'_>,
        offset: u64,
        length: u64,
    ) -> transom_cluster::Result<Option<FileBytes>> {
        let (address, path) = file.location();
        none_if_missing(self.agents.read_bytes(&address, &path, offset, length).await)
    }

    async fn lists_framework(&self, id: &FrameworkId) -> transom_cluster::Result<bool> {
        let listed = self.client.frameworks().await?;
        Ok(listed.iter().any(|framework| framework.id == *id))
    }
}

impl SandboxFile<'_> {
    /// The address of the agent, and the path of the file in its files API.
    fn location(self) -> (HostPort, String) {
        // The executor of a task that is not part of a group has the id of the task.
        let sandbox = agent::sandbox(self.framework, &self.task.as_str().into());
        let address = self.agent.endpoint.clone();
        let address = address.unwrap_or_else(|| HostPort::new(&self.agent.hostname, AGENT_PORT));
        (address, format!("{sandbox}/{}", self.path))
    }
}

/// Maps the error of a file that does not exist to `None`.
fn none_if_missing<T>(read: transom_cluster::Result<T>) -> transom_cluster::Result<Option<T>> {
    match read {
        Err(transom_cluster::Error::Rejected { status: 404, .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Creates clients of the orchestrator's API.
pub(crate) trait Connector: Debug + Send + Sync {
    /// Creates a client of the API at this address.
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
