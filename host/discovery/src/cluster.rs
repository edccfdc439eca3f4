//! The model of the cluster: only the data that records need.
//!
//! It is filled from the operator stream ([`operator`]) or the state document ([`document`]), keeps
//! the order in which entries were reported, and reports for each change whose records may differ.
//! Invalid entries are skipped and counted.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod addresses;
pub mod document;
pub mod operator;
mod ordered;
mod tasks;

use std::collections::HashSet;
use std::net::IpAddr;

use transom_cluster::v1::TaskState;
use transom_cluster::{AgentId, FrameworkId, TaskId};

pub use addresses::Addresses;
pub use ordered::Ordered;
pub use tasks::Tasks;
#[cfg(test)]
pub(crate) use tasks::VISITED;

/// A map with cheap clones, which share all entries that neither side changes.
pub(crate) type PersistentMap<K, V> =
    imbl::GenericHashMap<K, V, foldhash::fast::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

/// The cluster at one time. Clones are cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterModel {
    /// The leading master's address.
    pub leader: Option<Location>,
    /// Masters registered in ZooKeeper as `host:port`, the leader first.
    pub masters: Vec<String>,
    /// Agents by id.
    pub agents: Ordered<AgentId, Location>,
    /// Frameworks by id.
    pub frameworks: Ordered<FrameworkId, Framework>,
    /// Tasks by framework, without terminal ones.
    pub tasks: PersistentMap<FrameworkId, Tasks>,
    /// Agents that the leader knows from its registry and that have not registered with it yet.
    pub recovered: HashSet<AgentId>,
    /// Whether resources are used although no task is listed. Unlike the other fields, it is read after
    /// them, and only if there is no task.
    pub hides_tasks: bool,
    /// The number of invalid entries, which are not in the model.
    pub invalid_entries: u64,
}

/// The host and port of an agent, framework or master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Address or name.
    pub host: Host,
    /// Its port; frameworks of the newer API have none.
    pub port: Option<u16>,
}

/// An address or a host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A host name.
    Name(String),
}

impl Host {
    /// Parses an address or a host name; IPv4-mapped IPv6 addresses become IPv4 addresses.
    pub fn parse(text: &str) -> Self {
        text.parse::<IpAddr>()
            .map_or_else(|_| Self::Name(text.to_owned()), |ip| Self::Ip(ip.to_canonical()))
    }
}

impl Location {
    /// From a process id (`slave(1)@10.0.0.1:5051`).
    pub fn from_pid(pid: &str) -> Option<Self> {
        let (host, port) = transom_cluster::state::pid_address(pid)?;
        Some(Self {
            host: Host::parse(host),
            port: Some(port),
        })
    }
}

/// A framework.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framework {
    /// Its name as given.
    pub name: String,
    /// Its location, with a port only if it has a process id.
    pub endpoint: Option<Location>,
}

/// A task that has not ended. Small, because there may be very many.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// Its name as given.
    pub name: Box<str>,
    /// Its agent.
    pub agent: AgentId,
    /// Whether it is running.
    pub running: bool,
    /// Its ports on the agent, as ranges from first to last.
    pub ports: Box<[(u64, u64)]>,
    /// Its discovery information.
    pub discovery: Option<Box<Discovery>>,
    /// Its own addresses from the newest running status.
    pub addresses: Addresses,
    /// Whether it is staging or starting.
    pub is_staging: bool,
    /// The last result of its health check, if any.
    pub healthy: Option<bool>,
    /// Its labels whose values could be weights of SRV records.
    pub weights: Box<[(Box<str>, u16)]>,
    /// Its id, if another task of the framework has the same one; it is then stored under another
    /// key.
    pub duplicate_id: Option<TaskId>,
}

const _: () = assert!(size_of::<Task>() <= 144);

impl Task {
    /// Its id, which is its key in the model except for duplicates.
    pub fn id<'t>(&'t self, key: &'t TaskId) -> &'t TaskId {
        self.duplicate_id.as_ref().unwrap_or(key)
    }

    /// Whether it may have records, depending on the settings.
    fn is_publishable(&self) -> bool {
        self.running || self.is_staging
    }

    /// The weight in one of its labels.
    pub fn weight(&self, label: &str) -> Option<u16> {
        let entry = self.weights.iter().find(|(key, _)| **key == *label);
        entry.map(|(_, weight)| *weight)
    }
}

fn is_staging(state: &TaskState) -> bool {
    matches!(state, TaskState::Staging | TaskState::Starting)
}

/// The health in the newest status that has one; of equal timestamps, the later status counts.
fn newest_health(statuses: impl Iterator<Item = (f64, Option<bool>)>) -> Option<bool> {
    let reported = statuses.filter_map(|(timestamp, healthy)| Some((timestamp, healthy?)));
    reported
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, healthy)| healthy)
}

/// The labels whose values are numbers from 0 to 65535.
fn weights<'l>(labels: impl Iterator<Item = (&'l str, &'l str)>) -> Box<[(Box<str>, u16)]> {
    let weights = labels.filter_map(|(key, value)| Some((key.into(), value.parse().ok()?)));
    weights.collect()
}

/// A task's discovery information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Replaces the task's name; not empty.
    pub name: String,
    /// Ports on the task's own addresses.
    pub ports: Vec<NamedPort>,
}

/// A port from discovery information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// As given, even if it is not a valid port.
    pub number: u32,
    /// As given; empty stands for TCP and UDP.
    pub protocol: String,
    /// As given; may be empty.
    pub name: String,
}

impl Discovery {
    fn from_wire(info: &transom_cluster::v1::DiscoveryInfo) -> Option<Self> {
        let name = info.name.clone().filter(|name| !name.is_empty())?;
        let ports = info.ports.iter().flat_map(|ports| &ports.ports);
        let ports = ports.map(|port| NamedPort {
            number: port.number,
            protocol: port.protocol.clone().unwrap_or_default(),
            name: port.name.clone().unwrap_or_default(),
        });
        Some(Self {
            name,
            ports: ports.collect(),
        })
    }
}

impl ClusterModel {
    /// Adds what an earlier model has of recovered agents: the agents, their tasks, and the
    /// frameworks of these tasks. After a failover, agents register late, up to a minute, while
    /// their tasks run; the master lists neither until then.
    pub fn keep_recovered(&mut self, before: &Self) {
        if self.recovered.is_empty() {
            return;
        }
        for id in &self.recovered {
            if let (None, Some(location)) = (self.agents.get(id), before.agents.get(id)) {
                self.agents.insert(id.clone(), location.clone());
            }
        }
        for (framework, tasks) in &before.tasks {
            for (id, task) in tasks.iter() {
                let listed = self
                    .tasks
                    .get(framework)
                    .is_some_and(|tasks| tasks.get(id).is_some());
                if listed || !self.recovered.contains(&task.agent) {
                    continue;
                }
                if let (None, Some(owner)) =
                    (self.frameworks.get(framework), before.frameworks.get(framework))
                {
                    self.frameworks.insert(framework.clone(), owner.clone());
                }
                self.tasks
                    .entry(framework.clone())
                    .or_default()
                    .insert(id.clone(), task.clone());
            }
        }
    }

    /// Whether a task is listed.
    pub fn has_tasks(&self) -> bool {
        self.tasks.values().any(|tasks| !tasks.is_empty())
    }

    /// Every host name that needs a lookup.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        let agents = self.agents.iter().map(|(_, endpoint)| endpoint);
        let frameworks = self
            .frameworks
            .iter()
            .filter_map(|(_, framework)| framework.endpoint.as_ref());
        agents
            .chain(frameworks)
            .chain(&self.leader)
            .filter_map(|endpoint| match &endpoint.host {
                Host::Name(name) if !name.is_empty() => Some(name.as_str()),
                _ => None,
            })
    }
}
