//! The agents of the cluster and the matcher, as traits, with their real implementations.

use std::fmt::Debug;

use async_trait::async_trait;
use transom_cluster::Client;
use transom_cluster::operator::Agent as ListedAgent;
use transom_cluster::v1::Resource;
use transom_plugin_host::matcher::{Agent, AgentSet, Candidate, Task, Verdict};
use transom_plugin_host::{CallError, Plugins};
use transom_scheduler::Amounts;

/// The agents of the cluster.
#[async_trait]
pub trait AgentList: Debug + Send + Sync {
    /// All agents that accept tasks; their handles are their indices.
    async fn agents(&self) -> transom_cluster::Result<Vec<ActiveAgent>>;
}

/// An agent that accepts tasks.
#[derive(Debug)]
pub struct ActiveAgent {
    /// As the matcher knows it.
    pub agent: Agent,
    /// All its CPUs, memory, disk and GPUs, used or not.
    pub total: Amounts,
    /// All its ports, used or not: ranges from first to last inclusive.
    pub ports: Vec<(u64, u64)>,
}

/// The matcher.
pub trait MatchSessions: Debug + Send + Sync {
    /// A session with these agents, whose handles are their indices.
    fn match_session(&self, agents: Vec<Agent>) -> Box<dyn MatchSession>;
}

/// The matcher with a fixed set of agents.
#[async_trait]
pub trait MatchSession: Send {
    /// Whether the task may run on each agent.
    async fn judge(&mut self, task: &Task) -> Result<Vec<Verdict>, CallError>;
}

#[async_trait]
impl AgentList for Client {
    async fn agents(&self) -> transom_cluster::Result<Vec<ActiveAgent>> {
        active_agents(self).await
    }
}

/// The agents that the master lists as active, and that are not being drained.
pub async fn active_agents(client: &Client) -> transom_cluster::Result<Vec<ActiveAgent>> {
    let answer = client.get_agents().await?;
    let active = answer.agents.iter().filter(|agent| {
        agent.active != Some(false) && agent.deactivated != Some(true) && agent.drain_info.is_none()
    });
    let described = (0..).zip(active).map(|(handle, agent)| ActiveAgent {
        agent: transom_scheduler::to_matcher_agent(handle, &agent.agent_info),
        total: total(resources(agent)),
        ports: ports(resources(agent)),
    });
    Ok(described.collect())
}

/// What the master counts of an agent, or else what the agent has registered with.
fn resources(agent: &ListedAgent) -> &[Resource] {
    if agent.total_resources.is_empty() {
        &agent.agent_info.resources
    } else {
        &agent.total_resources
    }
}

fn total(resources: &[Resource]) -> Amounts {
    ["cpus", "mem", "disk", "gpus"].map(|name| {
        let named = resources.iter().filter(|resource| resource.name == name);
        named.filter_map(Resource::scalar_value).sum()
    })
}

fn ports(resources: &[Resource]) -> Vec<(u64, u64)> {
    let named = resources.iter().filter(|resource| resource.name == "ports");
    named.flat_map(Resource::port_ranges).collect()
}

impl MatchSessions for Plugins {
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
