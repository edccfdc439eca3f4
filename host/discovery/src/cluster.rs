//! What discovery knows of the cluster: a model with nothing in it that no record needs.
//!
//! It is filled from the operator stream ([`operator`]) or from the state document ([`document`]), keeps the order in
//! which things were told, and says of each change whether records may differ because of it. Entries that make no sense
//! are left out, one by one, and counted.

mod addresses;
pub mod document;
pub mod operator;
mod ordered;

use std::net::IpAddr;

use transom_cluster::v1::TaskState;
use transom_cluster::{AgentId, FrameworkId, TaskId};

pub use addresses::Addresses;
pub use ordered::Ordered;

use crate::map::Map;

/// The cluster at one moment. A clone costs nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// The leading master's address.
    pub leader: Option<Endpoint>,
    /// Masters as `host:port`, the leading one first, where ZooKeeper tells them.
    pub masters: Vec<String>,
    /// Agents by id.
    pub agents: Ordered<AgentId, Endpoint>,
    /// Frameworks by id.
    pub frameworks: Ordered<FrameworkId, Framework>,
    /// Tasks by framework, those that may run: what ended is not kept.
    pub tasks: Map<FrameworkId, Ordered<TaskId, Task>>,
    /// Entries that made no sense and were left out.
    pub skipped: u64,
}

/// A place as its owner names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address or name.
    pub host: Host,
    /// Its port; frameworks of the newer API have none.
    pub port: Option<u16>,
}

/// An address, or a name that has to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A host name.
    Name(String),
}

impl Host {
    /// Reads one of the two; IPv4 addresses written as IPv6 ones become what they are.
    pub fn parse(text: &str) -> Self {
        text.parse::<IpAddr>()
            .map_or_else(|_| Self::Name(text.to_owned()), |ip| Self::Ip(ip.to_canonical()))
    }
}

impl Endpoint {
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
    /// Where it is; with a port only when it has a process id.
    pub endpoint: Option<Endpoint>,
}

/// A task that has not ended. There may be very many, so it is small.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// Its name as given.
    pub name: Box<str>,
    /// Where it runs.
    pub agent: AgentId,
    /// Whether it is running: only then does it have records.
    pub running: bool,
    /// Ports on the agent that are its own, each range from first to last.
    pub ports: Box<[(u64, u64)]>,
    /// How it wants to be found.
    pub discovery: Option<Box<Discovery>>,
    /// Its own addresses, as of the newest status that said it runs.
    pub addresses: Addresses,
    /// Whether it is about to run: it is being staged, or is starting.
    pub about_to_run: bool,
    /// Whether it is well, as its health check said last; none: it has none, or that has said nothing yet.
    pub healthy: Option<bool>,
    /// Its labels whose values could be weights of service records.
    pub weights: Box<[(Box<str>, u16)]>,
    /// Its id, where another task of the framework has the same one: it is then known by something else.
    pub twin: Option<TaskId>,
}

const _: () = assert!(size_of::<Task>() <= 144);

impl Task {
    /// Its id: the one that it is known by, but for twins.
    pub fn id<'t>(&'t self, known_by: &'t TaskId) -> &'t TaskId {
        self.twin.as_ref().unwrap_or(known_by)
    }

    /// Whether it may have records, as sites have it.
    fn matters(&self) -> bool {
        self.running || self.about_to_run
    }

    /// The weight that a label of its says.
    pub fn weight(&self, label: &str) -> Option<u16> {
        let said = self.weights.iter().find(|(key, _)| **key == *label);
        said.map(|(_, weight)| *weight)
    }
}

fn is_about_to_run(state: &TaskState) -> bool {
    matches!(state, TaskState::Staging | TaskState::Starting)
}

/// What the newest status says of the health that says anything of it; the later one of equals.
fn newest_health(statuses: impl Iterator<Item = (f64, Option<bool>)>) -> Option<bool> {
    let said = statuses.filter_map(|(timestamp, healthy)| Some((timestamp, healthy?)));
    said.max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, healthy)| healthy)
}

/// The labels whose values are numbers from 0 to 65535.
fn weights<'l>(labels: impl Iterator<Item = (&'l str, &'l str)>) -> Box<[(Box<str>, u16)]> {
    let weights = labels.filter_map(|(key, value)| Some((key.into(), value.parse().ok()?)));
    weights.collect()
}

/// How a task wants to be found instead of by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Takes the place of the task's name; not empty.
    pub name: String,
    /// Ports it says it has, on its own addresses.
    pub ports: Vec<NamedPort>,
}

/// A port from discovery information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// As given, also when it is no port number.
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

impl Cluster {
    /// Every host name that would have to be looked up.
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
