//! Traits for the plugin host and the agents. The real implementations are here, scripted ones in
//! tests.

use std::fmt::Debug;

use async_trait::async_trait;
use transom_cluster::agent::Agents;
use transom_cluster::v1::Resource;
use transom_cluster::{AgentId, Client, FrameworkId, TaskId};
use transom_common::HostPort;
use transom_plugin_host::matcher::{Agent, AgentSet, Candidate, Constraint, ConstraintError, Task, Verdict};
use transom_plugin_host::{CallError, Plugins};

use crate::launch::Amounts;

/// The matcher: checks the syntax of constraints and judges agents.
#[async_trait]
pub(crate) trait Matcher: Debug + Send + Sync {
    async fn check(&self, conditions: &[Constraint]) -> Result<Vec<ConstraintError>, CallError>;

    /// A session with these agents, whose handles are their indices.
    fn match_session(&self, agents: Vec<Agent>) -> Box<dyn MatchSession>;
}

/// The matcher with a fixed set of agents.
#[async_trait]
pub(crate) trait MatchSession: Send {
    /// Whether the task may run on each agent.
    async fn judge(&mut self, task: &Task) -> Result<Vec<Verdict>, CallError>;
}

#[async_trait]
impl Matcher for Plugins {
    async fn check(&self, conditions: &[Constraint]) -> Result<Vec<ConstraintError>, CallError> {
        Plugins::validate_constraints(self, conditions).await
    }

    fn match_session(&self, agents: Vec<Agent>) -> Box<dyn MatchSession> {
        let candidates = candidates(u32::try_from(agents.len()).unwrap_or(u32::MAX));
        // Without a home region only the constraints are judged.
        let mut agent_set = self.agent_set(None);
        agent_set.update(agents, Vec::new());
        Box::new(PluginMatchSession {
            agent_set,
            candidates,
        })
    }
}

/// All agents, each with room for one instance.
fn candidates(agents: u32) -> Vec<Candidate> {
    (0..agents)
        .map(|agent| Candidate { agent, capacity: 1 })
        .collect()
}

struct PluginMatchSession {
    agent_set: AgentSet,
    candidates: Vec<Candidate>,
}

#[async_trait]
impl MatchSession for PluginMatchSession {
    async fn judge(&mut self, task: &Task) -> Result<Vec<Verdict>, CallError> {
        self.agent_set.evaluate(task, &self.candidates).await
    }
}

/// The agents of the cluster, and files in their sandboxes.
#[async_trait]
pub(crate) trait AgentDirectory: Debug + Send + Sync {
    /// All agents that accept tasks; their handles are their indices.
    async fn agents(&self) -> transom_cluster::Result<Vec<ActiveAgent>>;

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

/// An agent that accepts tasks.
#[derive(Debug)]
pub(crate) struct ActiveAgent {
    pub(crate) agent: Agent,
    /// All its CPUs, memory, disk and GPUs, used or not.
    pub(crate) total: Amounts,
}

/// A chunk of a file.
#[derive(Debug)]
pub(crate) struct FileChunk {
    pub(crate) data: Vec<u8>,
    pub(crate) offset: u64,
    /// Size of the whole file.
    pub(crate) size: u64,
}

/// The amounts of an agent: what the master counts, or else what the agent has registered with.
fn total(counted: &[Resource], registered: &[Resource]) -> Amounts {
    let resources = if counted.is_empty() { registered } else { counted };
    ["cpus", "mem", "disk", "gpus"].map(|name| {
        let named = resources.iter().filter(|resource| resource.name == name);
        named.filter_map(Resource::scalar_value).sum()
    })
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
impl AgentDirectory for ClusterAdapter {
    async fn agents(&self) -> transom_cluster::Result<Vec<ActiveAgent>> {
        let answer = self.client.get_agents().await?;
        let active = answer.agents.iter().filter(|agent| {
            agent.active != Some(false) && agent.deactivated != Some(true) && agent.drain_info.is_none()
        });
        let described = (0..).zip(active);
        Ok(described
            .map(|(handle, agent)| ActiveAgent {
                agent: transom_scheduler::to_matcher_agent(handle, &agent.agent_info),
                total: total(&agent.total_resources, &agent.agent_info.resources),
            })
            .collect())
    }

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
