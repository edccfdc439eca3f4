//! Faults: deliberate failures of the cluster, each with the effects that were recorded from a real
//! one.
//!
//! The rules are here and in [`super::restart`]; their API is in `master`.

use super::{
    AgentFault, AgentId, Connection, Effect, Framework, FrameworkId, KillOrder, State, TaskKey, model::Agent,
};
use crate::wire::recordio::{self, ConnectionCut};
use base64::Engine;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Maximum orders that are queued for disconnected agents; further ones are dropped.
const MAX_QUEUED_ORDERS: usize = 10_000;

/// The active faults, except those of single agents.
#[derive(Debug, Default)]
pub(crate) struct ActiveFaults {
    /// Orders that are queued for disconnected agents.
    pub(super) queued_orders: Vec<(AgentId, Effect)>,
    /// Number of updates of agents that will be lost.
    pub(super) lose_updates: u64,
    /// Delay of every response and event.
    pub(crate) delay: Duration,
    /// The master that is down.
    pub(super) down: Option<DownMaster>,
    /// The election of a standby.
    pub(super) election: Option<Election>,
    /// A master that has just started and answers 404 to everything, and the end of that time.
    pub(super) starting: Option<(SocketAddr, Instant)>,
    /// The time until which the leading master rejects calls.
    pub(super) recovering_until: Option<Instant>,
    /// The time from which agents register with the restarted master.
    pub(super) readmit_at: Option<Instant>,
    /// When each of these agents registers.
    pub(super) returns: BTreeMap<AgentId, Instant>,
    /// Whether the restarted master knows for which agents it waits.
    pub(super) remembers_agents: bool,
}

/// A master that is down, and the time of its return.
#[derive(Clone, Copy, Debug)]
pub(super) struct DownMaster {
    pub(super) addr: SocketAddr,
    pub(super) until: Instant,
}

/// An election: when the standbys notice the death of the leader, when one of them leads, and when
/// that has its routes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Election {
    pub(super) noticed: Instant,
    pub(super) elected: Instant,
    pub(super) started: Instant,
}

/// A port of the cluster.
#[derive(Clone, Debug)]
pub(crate) enum Port {
    Master(SocketAddr),
    Agent(SocketAddr),
}

/// How a port handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// The request is accepted, and answered only when the fault has ended.
    Silent,
    /// The connection is closed without a response.
    Closed,
}

impl State {
    /// How a port handles requests at this time.
    pub(crate) fn gate(&self, port: &Port, now: Instant) -> Gate {
        match port {
            Port::Master(addr) => match &self.faults.down {
                Some(down) if down.addr == *addr && now < down.until => Gate::Closed,
                _ => Gate::Open,
            },
            Port::Agent(addr) if self.maintenance.has_stopped(*addr) => Gate::Closed,
            Port::Agent(addr) => match self.agent_at(*addr).and_then(|agent| agent.fault) {
                Some(AgentFault::Killed) => Gate::Closed,
                Some(AgentFault::Paused) => Gate::Silent,
                Some(AgentFault::Partitioned) | None => Gate::Open,
            },
        }
    }

    /// Whether the leading master still rejects calls. Its lists are empty until then.
    pub(crate) fn is_recovering(&self) -> bool {
        self.faults.recovering_until.is_some()
    }

    /// Whether the leading master has died and no other one leads yet.
    pub(crate) fn is_electing(&self) -> bool {
        self.faults.election.is_some()
    }

    /// Whether no master leads, as far as the standbys know.
    pub(crate) fn has_no_leader(&self, now: Instant) -> bool {
        self.faults
            .election
            .is_some_and(|election| election.noticed <= now)
    }

    /// Whether the master at that address has no routes yet.
    pub(crate) fn is_starting(&self, addr: SocketAddr, now: Instant) -> bool {
        self.faults
            .starting
            .is_some_and(|(starting, until)| starting == addr && now < until)
    }

    /// Finds an agent by its id, the end of its id (`S0`) or its host name.
    pub(crate) fn find_agent(&self, name: &str) -> Result<AgentId, String> {
        let suffix = format!("-{name}");
        self.agents
            .values()
            .chain(self.awaited_agents.values())
            .find(|agent| {
                let id = agent.id.as_str();
                id == name || id.ends_with(&suffix) || agent.config.hostname == name
            })
            .map(|agent| agent.id.clone())
            .ok_or_else(|| format!("There is no agent '{name}': expected an id, its end (S0) or a host name"))
    }

    /// Finds a framework by its id or its name.
    pub(crate) fn find_framework(&self, name: &str) -> Result<FrameworkId, String> {
        self.frameworks
            .values()
            .find(|framework| framework.id.as_str() == name || framework.info["name"] == name)
            .map(|framework| framework.id.clone())
            .ok_or_else(|| format!("There is no framework '{name}': expected an id or a name"))
    }

    fn agent_without_fault(&mut self, id: &AgentId) -> Result<&mut Agent, String> {
        match self.agent_mut(id) {
            Some(agent) if agent.fault.is_none() => Ok(agent),
            Some(agent) => Err(format!("Agent {id} is {} already", fault_text(agent.fault))),
            None => Err(format!("There is no agent {id}")),
        }
    }

    /// Kills the agent's process, and also its tasks unless they are to be kept.
    pub(crate) fn kill_agent(&mut self, id: &AgentId, keep_tasks: bool, now: Instant) -> Result<(), String> {
        self.agent_without_fault(id)?.fault = Some(AgentFault::Killed);
        self.disconnect_agent(id, now);
        self.disconnect_executors_on(id);
        if keep_tasks {
            return Ok(());
        }
        let keys: Vec<TaskKey> = self
            .frameworks_of_agents()
            .flat_map(|framework| framework.tasks.values().chain(&framework.unreachable_tasks))
            .filter(|task| task.agent == *id)
            .map(|task| task.key.clone())
            .collect();
        let order = KillOrder {
            is_crash: true,
            ..KillOrder::default()
        };
        self.effects
            .extend(keys.into_iter().map(|key| Effect::Kill(key, order.clone())));
        self.kill_executors_on(id);
        Ok(())
    }

    /// Makes the agent stop answering. The master notices it when the agent's pings time out.
    pub(crate) fn silence_agent(
        &mut self,
        id: &AgentId,
        fault: AgentFault,
        now: Instant,
    ) -> Result<(), String> {
        let until = now + self.config.agent_timeout;
        let agent = self.agent_without_fault(id)?;
        agent.fault = Some(fault);
        agent.connection = Connection::Silent(until);
        Ok(())
    }

    /// Ends an agent's fault: it returns with its running tasks.
    pub(crate) fn restore_agent(
        &mut self,
        id: &AgentId,
        fault: AgentFault,
        now: Instant,
    ) -> Result<(), String> {
        let agent = self
            .agent_mut(id)
            .filter(|agent| agent.fault == Some(fault))
            .ok_or_else(|| format!("Agent {id} is not {}", fault_text(Some(fault))))?;
        agent.fault = None;
        if fault == AgentFault::Killed {
            self.expect_executors_on(id, now);
        }
        if let Some(agent) = self.awaited_agents.get_mut(id) {
            // It registers together with the other agents.
            agent.connection = Connection::Connected;
        } else {
            self.reconnect_agent(id, now);
        }
        Ok(())
    }

    /// Loses the next updates of agents. Their retries are delivered.
    pub(crate) fn lose_updates(&mut self, count: u64) {
        self.faults.lose_updates = count;
    }

    /// Cuts a framework's stream in the middle of a record.
    pub(crate) fn cut_stream(&mut self, id: &FrameworkId) -> Result<(), String> {
        let stream = self
            .frameworks
            .get(id)
            .and_then(|framework| framework.stream.as_ref())
            .ok_or_else(|| format!("Framework {id} is not subscribed"))?;
        let record = recordio::record(&json!({"type": "HEARTBEAT"}));
        let first_send = stream.events.try_send(Ok(record.slice(..record.len() / 2)));
        first_send
            .and_then(|()| stream.events.try_send(Err(ConnectionCut)))
            .map_err(|_| format!("The event queue of framework {id} is full"))
    }

    /// Sends a framework a message, in base64, as if the executor of a task had sent it.
    pub(crate) fn send_as_executor(
        &mut self,
        framework: Option<&FrameworkId>,
        task: &str,
        data: &str,
    ) -> Result<(), String> {
        if base64::engine::general_purpose::STANDARD.decode(data).is_err() {
            return Err("Expecting 'data' to be base64".to_owned());
        }
        let found: Vec<_> = self
            .tasks()
            .filter(|one| one.key.task.as_str() == task)
            .filter(|one| framework.is_none_or(|id| one.key.framework == *id))
            .map(|one| {
                let executor = (one.agent.clone(), one.executor_id().to_owned());
                (one.key.framework.clone(), executor)
            })
            .collect();
        let [(id, key)] = &found[..] else {
            let count = found.len();
            return Err(format!(
                "There are {count} tasks '{task}': expected one; if several frameworks have it, name the framework"
            ));
        };
        let agent = self.agents.get(&key.0);
        if agent.is_none_or(|agent| agent.connection != Connection::Connected) {
            return Err(format!("Agent {} cannot be reached", key.0));
        }
        if !self.frameworks.get(id).is_some_and(Framework::is_subscribed) {
            return Err(format!("Framework {id} is not subscribed"));
        }
        self.executor_message(id, key, &json!(data));
        Ok(())
    }

    /// Rescinds the offers of one agent, or of all.
    pub(crate) fn rescind(&mut self, agent: Option<&AgentId>) {
        let agents: Vec<AgentId> = self
            .agents
            .keys()
            .filter(|id| agent.is_none_or(|agent| agent == *id))
            .cloned()
            .collect();
        for id in agents {
            self.rescind_offers_on(&id);
        }
    }

    /// Queues an order for a disconnected agent.
    pub(super) fn queue_order(&mut self, agent: &AgentId, effect: Effect) {
        if self.faults.queued_orders.len() < MAX_QUEUED_ORDERS {
            self.faults.queued_orders.push((agent.clone(), effect));
        } else {
            tracing::warn!(%agent, "order for a disconnected agent dropped: the queue is full");
        }
    }

    /// Sends an agent its queued orders.
    pub(super) fn send_queued_orders(&mut self, id: &AgentId) {
        let (due, rest) = std::mem::take(&mut self.faults.queued_orders)
            .into_iter()
            .partition(|(agent, _)| agent == id);
        self.faults.queued_orders = rest;
        let due: Vec<(AgentId, Effect)> = due;
        self.effects.extend(due.into_iter().map(|(_, effect)| effect));
    }

    /// Drops the queued orders for an agent that never returns.
    pub(super) fn drop_queued_orders(&mut self, id: &AgentId) {
        self.faults.queued_orders.retain(|(agent, _)| agent != id);
    }

    /// Drops the queued launch of a task. Returns whether there was one, which means that the task
    /// never started.
    pub(super) fn drop_queued_launch(&mut self, key: &TaskKey) -> bool {
        let before = self.faults.queued_orders.len();
        self.faults.queued_orders.retain(|(_, effect)| match effect {
            Effect::Launch(launch) => launch.key != *key,
            _ => true,
        });
        self.faults.queued_orders.len() < before
    }

    /// The active faults, for users and for tests.
    pub(crate) fn active_faults(&self, now: Instant) -> Vec<Value> {
        let mut list: Vec<Value> = self
            .agents
            .values()
            .chain(self.awaited_agents.values())
            .filter(|agent| agent.fault.is_some())
            .map(|agent| {
                json!({
                    "agent": agent.id.as_str(),
                    "is": fault_text(agent.fault),
                    "unreachable": self.unreachable_agents.contains_key(&agent.id),
                })
            })
            .collect();
        if self.faults.lose_updates > 0 {
            list.push(json!({"lose_updates": self.faults.lose_updates}));
        }
        if !self.faults.delay.is_zero() {
            list.push(json!({"delay_ms": self.faults.delay.as_millis() as u64}));
        }
        if let Some(down) = &self.faults.down {
            let remaining_ms = down.until.saturating_duration_since(now).as_millis() as u64;
            list.push(json!({"master": down.addr.to_string(), "is": "down", "for_ms": remaining_ms}));
        }
        if let Some((addr, until)) = self.faults.starting.filter(|(_, until)| now < *until) {
            let remaining_ms = until.saturating_duration_since(now).as_millis() as u64;
            list.push(json!({"master": addr.to_string(), "is": "starting", "for_ms": remaining_ms}));
        }
        if self.is_recovering() {
            list.push(json!({"master": self.master.addr.to_string(), "is": "recovering"}));
        }
        list.extend(
            self.awaited_agents
                .keys()
                .map(|id| json!({"agent": id.as_str(), "is": "not registered with the restarted master"})),
        );
        list
    }
}

fn fault_text(fault: Option<AgentFault>) -> &'static str {
    match fault {
        Some(AgentFault::Killed) => "killed",
        Some(AgentFault::Paused) => "paused",
        Some(AgentFault::Partitioned) => "partitioned",
        None => "well",
    }
}
