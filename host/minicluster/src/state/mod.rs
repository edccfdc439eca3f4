//! The cluster's state and its rules: frameworks, agents, offers, tasks, and what each call and each event changes.
//!
//! Nothing here does input or output. Methods take the present time where they need it, send events into bounded
//! queues without waiting, and leave what must be done outside, starting and killing processes, in
//! [`State::effects`]. [`crate::shared::Shared`] holds the one lock around all this, never across an await.

mod accept;
mod agents;
mod frameworks;
mod kill;
mod model;
mod offers;
mod operator;
mod reconcile;
mod scheduler;
mod tick;
mod updates;

pub(crate) use kill::grace as kill_grace;
pub(crate) use model::{
    Agent, AgentId, Connection, Effect, Executor, Framework, FrameworkId, KillOrder, Launch, Offer, OfferId,
    Task, TaskId, TaskKey, TaskState,
};
pub(crate) use scheduler::{Reply, validate as scheduler_validate};
pub(crate) use updates::{AgentUpdate, CheckResult};

use crate::config::Config;
use bytes::Bytes;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::SocketAddr,
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc;

/// Events a stream may lag behind before it is closed.
pub(crate) const STREAM_EVENTS: usize = 4096;
/// Frameworks and tasks that are remembered after their end, as a real master's defaults.
pub(crate) const COMPLETED_FRAMEWORKS: usize = 50;
pub(crate) const COMPLETED_TASKS: usize = 1000;
/// Operator streams at the same time.
const WATCHERS: usize = 1000;
/// The version this cluster speaks.
pub(crate) const VERSION: &str = "1.11.0";

/// Who the master is.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    pub(crate) id: String,
    pub(crate) hostname: String,
    pub(crate) cluster: String,
    pub(crate) addr: SocketAddr,
    pub(crate) started: f64,
}

/// Everything the cluster knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) master: Master,
    pub(crate) frameworks: BTreeMap<FrameworkId, Framework>,
    pub(crate) completed: VecDeque<Framework>,
    pub(crate) agents: BTreeMap<AgentId, Agent>,
    pub(crate) gone_agents: Vec<AgentId>,
    pub(crate) unreachable_agents: BTreeMap<AgentId, f64>,
    pub(crate) offers: BTreeMap<OfferId, Offer>,
    /// Processes that still end although their task is already told to have ended: what they hold until then.
    lingering: HashMap<TaskKey, (AgentId, crate::wire::resources::Bundle)>,
    watchers: Vec<Watcher>,
    next_framework: u64,
    next_offer: u64,
    next_allocation: Instant,
    /// To be carried out by the holder of the lock.
    pub(crate) effects: Vec<Effect>,
}

/// An operator's event stream.
#[derive(Debug)]
struct Watcher {
    events: mpsc::Sender<Bytes>,
    next_heartbeat: Instant,
}

impl State {
    pub(crate) fn new(config: Config, master: Master, now: Instant) -> Self {
        Self {
            next_allocation: now + config.allocation_interval,
            config,
            master,
            frameworks: BTreeMap::new(),
            completed: VecDeque::new(),
            agents: BTreeMap::new(),
            gone_agents: Vec::new(),
            unreachable_agents: BTreeMap::new(),
            offers: BTreeMap::new(),
            lingering: HashMap::new(),
            watchers: Vec::new(),
            next_framework: 0,
            next_offer: 0,
            effects: Vec::new(),
        }
    }

    /// The task, if its framework still has it.
    pub(crate) fn task(&self, key: &TaskKey) -> Option<&Task> {
        self.frameworks.get(&key.framework)?.tasks.get(&key.task)
    }

    /// The task, also when its agent is unreachable: there it goes on living.
    pub(crate) fn task_mut(&mut self, key: &TaskKey) -> Option<&mut Task> {
        let framework = self.frameworks.get_mut(&key.framework)?;
        let unreachable = &mut framework.unreachable_tasks;
        framework
            .tasks
            .get_mut(&key.task)
            .or_else(|| unreachable.iter_mut().find(|task| task.key == *key))
    }

    /// The framework's tasks that are not done with.
    fn tasks_of(&self, id: &FrameworkId) -> Vec<TaskKey> {
        let tasks = self
            .frameworks
            .get(id)
            .into_iter()
            .flat_map(|one| one.tasks.values());
        tasks.map(|task| task.key.clone()).collect()
    }

    /// All tasks that are not done with.
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
            "ip": packed(ip),
            "port": master.addr.port(),
            "pid": format!("master@{}", master.addr),
            "hostname": master.hostname,
            "version": VERSION,
            "address": {"hostname": master.hostname, "ip": ip.to_string(), "port": master.addr.port()},
            "capabilities": [{"type": "AGENT_UPDATE"}, {"type": "AGENT_DRAINING"}, {"type": "QUOTA_V2"}],
        })
    }
}

/// An IPv4 address as the number the API shows: network order read as little endian.
fn packed(ip: std::net::IpAddr) -> u32 {
    match ip {
        std::net::IpAddr::V4(ip) => u32::from_le_bytes(ip.octets()),
        std::net::IpAddr::V6(_) => 0,
    }
}

/// Seconds since the epoch, as the API's timestamps are.
pub(crate) fn epoch() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_micros() as f64 / 1e6)
}

/// A `TimeInfo` of such a timestamp.
pub(crate) fn time_info(seconds: f64) -> Value {
    json!({"nanoseconds": (seconds * 1e9) as i64})
}
