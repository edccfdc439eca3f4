//! Traits for the plugin host and the agents. The real implementations are here, scripted ones in
//! tests.

use std::fmt::Debug;

use async_trait::async_trait;
use transom_cluster::agent::Agents;
use transom_cluster::{AgentId, Client, FrameworkId, TaskId};
use transom_common::HostPort;
use transom_framework::feasibility::{ActiveAgent, AgentList, MatchSessions, active_agents};
use transom_plugin_host::matcher::{Constraint, ConstraintError};
use transom_plugin_host::{CallError, Plugins};

/// The matcher: checks the syntax of constraints and judges agents.
#[async_trait]
pub(crate) trait Matcher: MatchSessions {
    async fn check(&self, conditions: &[Constraint]) -> Result<Vec<ConstraintError>, CallError>;
}

#[async_trait]
impl Matcher for Plugins {
    async fn check(&self, conditions: &[Constraint]) -> Result<Vec<ConstraintError>, CallError> {
        Plugins::validate_constraints(self, conditions).await
    }
}

/// The agents of the cluster, and files in their sandboxes.
#[async_trait]
pub(crate) trait AgentDirectory: AgentList {
    /// The address of an agent.
    async fn agent(&self, id: &AgentId) -> transom_cluster::Result<Option<HostPort>>;

    /// A chunk of a file in a task's sandbox. `offset`: `None` for the end.
    async fn read(
        &self,
        agent: &HostPort,
        framework: &FrameworkId,
        task: &TaskId,
        file: &str,
        offset: Option<u64>,
        length: u64,
    ) -> transom_cluster::Result<FileChunk>;
}

/// A chunk of a file.
#[derive(Debug)]
pub(crate) struct FileChunk {
    pub(crate) data: Vec<u8>,
    pub(crate) offset: u64,
    /// Size of the whole file.
    pub(crate) size: u64,
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
impl AgentList for ClusterAdapter {
    async fn agents(&self) -> transom_cluster::Result<Vec<ActiveAgent>> {
        active_agents(&self.client).await
    }
}

#[async_trait]
impl AgentDirectory for ClusterAdapter {
    async fn agent(&self, id: &AgentId) -> transom_cluster::Result<Option<HostPort>> {
        let answer = self.client.get_agents().await?;
        Ok(answer
            .agents
            .into_iter()
            .map(|agent| agent.agent_info)
            .find_map(|info| {
                let found = info.id.as_ref() == Some(id);
                found.then(|| HostPort::new(info.hostname, info.port.unwrap_or(5051)))
            }))
    }

    async fn read(
        &self,
        agent: &HostPort,
        framework: &FrameworkId,
        task: &TaskId,
        file: &str,
        offset: Option<u64>,
        length: u64,
    ) -> transom_cluster::Result<FileChunk> {
        // The executor of a task that is launched alone has the id of the task.
        let sandbox = transom_cluster::agent::sandbox(framework, &task.as_str().into());
        let path = format!("{sandbox}/{file}");
        let offset = match offset {
            Some(offset) => offset,
            None => self.agents.size(agent, &path).await?.saturating_sub(length),
        };
        let read = self.agents.read_bytes(agent, &path, offset, length).await?;
        Ok(FileChunk {
            data: read.data,
            offset,
            size: read.size,
        })
    }
}
