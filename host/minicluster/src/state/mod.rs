//! The cluster's state and its rules: frameworks, agents, offers and tasks, and the changes by each
//! call and each event.
//!
//! Nothing here does input or output. Methods take the current time where they need it, send events
//! into bounded queues without waiting, and leave external actions, such as starting and killing
//! processes, in [`State::effects`]. One lock guards the state; it is never held across an await.
//! The documents of the operator API are here because its events contain them.

mod accept;
mod accepted;
mod agents;
mod executors;
mod faults;
mod frameworks;
mod inverse_offers;
mod kill;
mod machines;
mod maintenance;
mod model;
mod offers;
mod operations;
mod operator;
pub(crate) mod operator_views;
mod reconcile;
mod restart;
mod scheduler;
mod tick;
mod updates;
pub(crate) mod visibility;

pub(crate) use executors::{ExecutorEnd, validate_executor_call};
pub(crate) use faults::{Gate, Port};
pub(crate) use frameworks::Subscribed;
pub(crate) use inverse_offers::InverseOffer;
pub(crate) use kill::grace as kill_grace;
pub(crate) use model::{
    Agent, AgentFault, AgentId, Connection, Effect, EndCause, Executor, Framework, FrameworkId, KillOrder,
    Launch, Offer, OfferId, Task, TaskGroup, TaskId, TaskKey, TaskState,
};
pub(crate) use restart::Restart;
pub(crate) use scheduler::{Reply, validate as validate_scheduler_call};
pub(crate) use updates::{AgentUpdate, CheckResult};

use crate::{config::Config, wire::recordio::Event};
use faults::ActiveFaults;
use maintenance::Maintenance;
use model::Operations;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::SocketAddr,
    time::Instant,
};
use tokio::sync::mpsc;
use transom_common::ambient;

/// Maximum queued events of a stream. A stream that falls further behind is closed.
pub(crate) const MAX_STREAM_EVENTS: usize = 4096;
/// Completed frameworks and tasks that are kept: the defaults of a real master.
pub(crate) const MAX_COMPLETED_FRAMEWORKS: usize = 50;
pub(crate) const MAX_COMPLETED_TASKS: usize = 1000;
/// Maximum concurrent operator streams.
const MAX_WATCHERS: usize = 1000;
/// The Mesos version that this cluster implements.
pub(crate) const VERSION: &str = "1.11.0";

/// The identity of the master.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    pub(crate) id: String,
    pub(crate) hostname: String,
    pub(crate) cluster: String,
    pub(crate) addr: SocketAddr,
    pub(crate) started: f64,
}

/// The whole state of the cluster.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) master: Master,
    /// Host names and addresses of the other masters, in the order in which they are elected.
    pub(crate) standbys: VecDeque<(String, SocketAddr)>,
    pub(crate) frameworks: BTreeMap<FrameworkId, Framework>,
    pub(crate) completed_frameworks: VecDeque<Framework>,
    /// Completed tasks that are kept for each framework; see [`MAX_COMPLETED_TASKS`].
    pub(crate) max_completed_tasks: usize,
    pub(crate) agents: BTreeMap<AgentId, Agent>,
    pub(crate) gone_agents: Vec<AgentId>,
    pub(crate) unreachable_agents: BTreeMap<AgentId, f64>,
    /// Agents that are running but have not registered since the master restarted. Their frameworks
    /// are in `forgotten_frameworks`.
    pub(crate) awaited_agents: BTreeMap<AgentId, Agent>,
    pub(crate) forgotten_frameworks: BTreeMap<FrameworkId, Framework>,
    pub(crate) offers: BTreeMap<OfferId, Offer>,
    pub(crate) maintenance: Maintenance,
    /// Outcomes of operations that are not acknowledged yet.
    operations: Operations,
    pub(crate) faults: ActiveFaults,
    /// Processes that are still ending although their task is already reported as ended, with the
    /// resources that they occupy until then.
    lingering: HashMap<TaskKey, (AgentId, crate::wire::resources::Resources)>,
    /// Custom executors that the master no longer knows, by container, until their processes have
    /// ended.
    ending_executors: BTreeMap<String, model::EndingExecutor>,
    pub(crate) watchers: Vec<Watcher>,
    next_framework: u64,
    /// Not reset when the master restarts, because tools identify agents by the ends of their ids.
    next_agent: u64,
    next_offer: u64,
    next_allocation: Instant,
    /// Executed by the holder of the lock before it releases it.
    pub(crate) effects: Vec<Effect>,
}

/// An operator's event stream.
#[derive(Debug)]
pub(crate) struct Watcher {
    events: mpsc::Sender<Event>,
    next_heartbeat: Instant,
    /// Whether its principal may view frameworks and tasks.
    sees_tasks: bool,
}

impl State {
    pub(crate) fn new(
        config: Config,
        master: Master,
        standbys: VecDeque<(String, SocketAddr)>,
        now: Instant,
    ) -> Self {
        Self {
            next_allocation: now + config.allocation_interval,
            config,
            master,
            standbys,
            frameworks: BTreeMap::new(),
            completed_frameworks: VecDeque::new(),
            max_completed_tasks: MAX_COMPLETED_TASKS,
            agents: BTreeMap::new(),
            gone_agents: Vec::new(),
            unreachable_agents: BTreeMap::new(),
            awaited_agents: BTreeMap::new(),
            forgotten_frameworks: BTreeMap::new(),
            offers: BTreeMap::new(),
            maintenance: Maintenance::default(),
            operations: Operations::default(),
            faults: ActiveFaults::default(),
            lingering: HashMap::new(),
            ending_executors: BTreeMap::new(),
            watchers: Vec::new(),
            next_framework: 0,
            next_agent: 0,
            next_offer: 0,
            effects: Vec::new(),
        }
    }

    /// The task, if its framework has it and its agent is reachable.
    pub(crate) fn task(&self, key: &TaskKey) -> Option<&Task> {
        self.frameworks.get(&key.framework)?.tasks.get(&key.task)
    }

    /// The task, even if its agent is unreachable, because it may still run there.
    pub(crate) fn task_mut(&mut self, key: &TaskKey) -> Option<&mut Task> {
        let known = self.frameworks.get_mut(&key.framework).and_then(|framework| {
            let unreachable = &mut framework.unreachable_tasks;
            framework
                .tasks
                .get_mut(&key.task)
                .or_else(|| unreachable.iter_mut().find(|task| task.key == *key))
        });
        known.or_else(|| {
            self.forgotten_frameworks
                .get_mut(&key.framework)?
                .tasks
                .get_mut(&key.task)
        })
    }

    /// The agent, even if it has not registered with the restarted master.
    pub(crate) fn agent(&self, id: &AgentId) -> Option<&Agent> {
        self.agents.get(id).or_else(|| self.awaited_agents.get(id))
    }

    /// The agent with this address, even if it has not registered with the restarted master.
    fn agent_at(&self, addr: SocketAddr) -> Option<&Agent> {
        self.agents
            .values()
            .chain(self.awaited_agents.values())
            .find(|agent| agent.addr == addr)
    }

    /// The current id of the agent with this address, if it runs.
    pub(crate) fn agent_id_at(&self, addr: SocketAddr) -> Option<AgentId> {
        self.agent_at(addr).map(|agent| agent.id.clone())
    }

    fn agent_mut(&mut self, id: &AgentId) -> Option<&mut Agent> {
        self.agents
            .get_mut(id)
            .or_else(|| self.awaited_agents.get_mut(id))
    }

    /// The agents that the master shows: the registered and reachable ones.
    pub(crate) fn listed_agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents
            .values()
            .filter(|agent| !self.unreachable_agents.contains_key(&agent.id))
    }

    /// The agents from before its restart for which the master waits. It knows them when it has
    /// recovered.
    pub(crate) fn recovered_agents(&self) -> impl Iterator<Item = &Agent> {
        let known = self.faults.remembers_agents && !self.is_recovering();
        self.awaited_agents
            .values()
            .filter(move |agent| known && !self.unreachable_agents.contains_key(&agent.id))
    }

    /// The frameworks that agents know, including those that the master has forgotten.
    pub(crate) fn frameworks_of_agents(&self) -> impl Iterator<Item = &Framework> {
        self.frameworks.values().chain(self.forgotten_frameworks.values())
    }

    /// Orders an agent to start or kill a process: immediately, or when it is connected again.
    fn send_order(&mut self, agent: &AgentId, effect: Effect) {
        let connected = self
            .agents
            .get(agent)
            .is_none_or(|agent| agent.connection == Connection::Connected);
        if connected {
            self.effects.push(effect);
        } else {
            self.queue_order(agent, effect);
        }
    }

    /// Orders the task's agent to kill it.
    fn order_kill(&mut self, key: &TaskKey, order: KillOrder) {
        let agent = self.task_mut(key).map(|task| task.agent.clone());
        if let Some(agent) = agent {
            self.send_order(&agent, Effect::Kill(key.clone(), order));
        }
    }

    /// The framework's tasks that are not completed.
    fn tasks_of(&self, id: &FrameworkId) -> Vec<TaskKey> {
        let tasks = self
            .frameworks
            .get(id)
            .into_iter()
            .flat_map(|one| one.tasks.values());
        tasks.map(|task| task.key.clone()).collect()
    }

    /// All tasks that are not completed.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.frameworks
            .values()
            .flat_map(|framework| framework.tasks.values())
    }

    /// The `MasterInfo` message.
    pub(crate) fn master_info(&self) -> Value {
        let master = &self.master;
        let ip = master.addr.ip();
        json!({
            "id": master.id,
            "ip": packed_ip(ip),
            "port": master.addr.port(),
            "pid": format!("master@{}", master.addr),
            "hostname": master.hostname,
            "version": VERSION,
            "address": {"hostname": master.hostname, "ip": ip.to_string(), "port": master.addr.port()},
            "capabilities": [{"type": "AGENT_UPDATE"}, {"type": "AGENT_DRAINING"}, {"type": "QUOTA_V2"}],
        })
    }
}

/// An IPv4 address as the number in the API: network order read as little endian.
fn packed_ip(ip: std::net::IpAddr) -> u32 {
    match ip {
        std::net::IpAddr::V4(ip) => u32::from_le_bytes(ip.octets()),
        std::net::IpAddr::V6(_) => 0,
    }
}

/// Seconds since the epoch, the API's timestamps.
pub(crate) fn epoch() -> f64 {
    ambient::now().as_microsecond() as f64 / 1e6
}

/// A new random identifier.
pub(crate) fn new_uuid() -> uuid::Uuid {
    let bits = u128::from(ambient::random()) << 64 | u128::from(ambient::random());
    uuid::Builder::from_random_bytes(bits.to_ne_bytes()).into_uuid()
}

/// A `TimeInfo` with such a timestamp.
pub(crate) fn time_info(seconds: f64) -> Value {
    json!({"nanoseconds": (seconds * 1e9) as i64})
}
