//! The model from a state document, `GET /state`.
//!
//! The document is parsed once for its lists, and then entry by entry, keeping only what records
//! need. An invalid entry is therefore skipped without its neighbours, and a large document needs
//! little more memory than its text.

mod null_entries;

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use transom_cluster::v1::{ContainerStatus, Label, TaskState};
use transom_cluster::{AgentId, FrameworkId, TaskId, state};

use super::addresses::Status;
use super::{
    Addresses, ClusterModel, Discovery, Framework, Host, Location, NamedPort, Task, Tasks, is_staging,
    newest_health, weights,
};

/// A parsed document.
#[derive(Debug)]
pub struct Document {
    /// The model.
    pub cluster: ClusterModel,
    /// When the master was elected, in seconds since 1970.
    pub elected: Option<f64>,
    leader: Option<String>,
    pid: Option<String>,
}

impl Document {
    /// Whether all lists are empty, as those of a master that is recovering.
    pub fn is_empty(&self) -> bool {
        let cluster = &self.cluster;
        cluster.agents.is_empty() && cluster.recovered.is_empty() && cluster.frameworks.is_empty()
    }
}

impl state::Document for Document {
    fn read(document: &[u8]) -> serde_json::Result<Self> {
        read(document)
    }

    fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    fn pid(&self) -> Option<&str> {
        self.pid.as_deref()
    }
}

/// Only the leader of a document.
#[derive(Debug, Deserialize)]
pub struct Leading {
    leader: Option<String>,
    pid: Option<String>,
}

impl Leading {
    /// The leader's location.
    pub fn endpoint(&self) -> Option<Location> {
        self.leader.as_deref().and_then(Location::from_pid)
    }
}

impl state::Document for Leading {
    fn read(document: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(document)
    }

    fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    fn pid(&self) -> Option<&str> {
        self.pid.as_deref()
    }
}

/// Unparsed entries of a list.
type Entries<'d> = Option<Vec<&'d RawValue>>;

#[derive(Deserialize)]
struct WireDocument<'d> {
    leader: Option<String>,
    pid: Option<String>,
    elected_time: Option<f64>,
    #[serde(borrow)]
    slaves: Entries<'d>,
    #[serde(borrow)]
    recovered_slaves: Entries<'d>,
    #[serde(borrow)]
    frameworks: Entries<'d>,
}

#[derive(Deserialize)]
struct Slave {
    id: Option<String>,
    pid: Option<String>,
    hostname: Option<String>,
    port: Option<u16>,
}

#[derive(Deserialize)]
struct WireFramework<'d> {
    id: Option<String>,
    name: Option<String>,
    pid: Option<String>,
    hostname: Option<String>,
    #[serde(borrow)]
    tasks: Entries<'d>,
}

#[derive(Deserialize)]
struct WireTask<'d> {
    id: Option<String>,
    name: Option<String>,
    slave_id: Option<String>,
    state: Option<TaskState>,
    resources: Option<Resources>,
    #[serde(borrow)]
    statuses: Entries<'d>,
    #[serde(borrow)]
    labels: Entries<'d>,
    #[serde(borrow)]
    discovery: Option<WireDiscovery<'d>>,
}

#[derive(Deserialize)]
struct Resources {
    ports: Option<String>,
}

#[derive(Deserialize)]
struct WireStatus {
    state: Option<TaskState>,
    timestamp: Option<f64>,
    healthy: Option<bool>,
    #[serde(default, deserialize_with = "null_entries::labels")]
    labels: Option<Vec<Label>>,
    #[serde(default, deserialize_with = "null_entries::container")]
    container_status: Option<ContainerStatus>,
}

#[derive(Deserialize)]
struct WireDiscovery<'d> {
    name: Option<String>,
    #[serde(borrow)]
    ports: Option<Ports<'d>>,
}

#[derive(Deserialize)]
struct Ports<'d> {
    #[serde(borrow)]
    ports: Entries<'d>,
}

#[derive(Deserialize)]
struct Port {
    number: Option<u32>,
    protocol: Option<String>,
    name: Option<String>,
}

/// Parses a document. Invalid UTF-8 becomes replacement characters, as tasks may have any name.
pub fn read(document: &[u8]) -> serde_json::Result<Document> {
    let text = String::from_utf8_lossy(document);
    let wire: WireDocument<'_> = serde_json::from_str(&text)?;
    let mut cluster = ClusterModel {
        leader: wire.leader.as_deref().and_then(Location::from_pid),
        ..ClusterModel::default()
    };
    for entry in wire.slaves.iter().flatten() {
        match readable::<Slave>(entry).and_then(agent_location) {
            Some((id, endpoint)) => drop(cluster.agents.insert(id, endpoint)),
            None => cluster.invalid_entries += 1,
        }
    }
    let recovered = wire.recovered_slaves.iter().flatten();
    let recovered = recovered.filter_map(|entry| readable::<Slave>(entry)?.id);
    cluster.recovered.extend(recovered.map(AgentId::from));
    let mut ids = HashSet::new();
    for (number, entry) in wire.frameworks.iter().flatten().enumerate() {
        let Some(framework) = readable::<WireFramework<'_>>(entry) else {
            cluster.invalid_entries += 1;
            continue;
        };
        let mut id = FrameworkId::from(framework.id.as_deref().unwrap_or_default());
        if !ids.insert(id.clone()) {
            // Real masters have no duplicate framework ids; a number keeps the tasks apart.
            id = FrameworkId::from(format!("{id} ({number})"));
        }
        let tasks = read_tasks(
            framework.tasks.as_deref().unwrap_or_default(),
            &mut cluster.invalid_entries,
        );
        cluster.frameworks.insert(id.clone(), read_framework(framework));
        cluster.tasks.insert(id, tasks);
    }
    Ok(Document {
        cluster,
        elected: wire.elected_time,
        leader: wire.leader,
        pid: wire.pid,
    })
}

/// Parses an entry; none if it is invalid.
fn readable<'d, T: Deserialize<'d>>(entry: &'d RawValue) -> Option<T> {
    match serde_json::from_str(entry.get()) {
        Ok(read) => Some(read),
        Err(error) => {
            tracing::debug!(%error, "skipping an invalid entry of the state document");
            None
        }
    }
}

/// An agent's location: from its process id, else from its host name and port.
fn agent_location(slave: Slave) -> Option<(AgentId, Location)> {
    let by_pid = slave.pid.as_deref().and_then(Location::from_pid);
    let by_name = || {
        let hostname = slave.hostname.filter(|hostname| !hostname.is_empty())?;
        Some(Location {
            host: Host::parse(&hostname),
            port: slave.port,
        })
    };
    Some((AgentId::from(slave.id?), by_pid.or_else(by_name)?))
}

fn read_framework(framework: WireFramework<'_>) -> Framework {
    let by_pid = framework.pid.as_deref().and_then(Location::from_pid);
    let by_name = || {
        let hostname = framework.hostname.filter(|hostname| !hostname.is_empty())?;
        Some(Location {
            host: Host::parse(&hostname),
            port: None,
        })
    };
    Framework {
        endpoint: by_pid.or_else(by_name),
        name: framework.name.unwrap_or_default(),
    }
}

/// The tasks that have not ended. Of tasks with the same id, which real masters do not have, all are
/// kept.
fn read_tasks(entries: &[&RawValue], invalid_entries: &mut u64) -> Tasks {
    let mut tasks = Tasks::default();
    for (number, entry) in entries.iter().enumerate() {
        match readable::<WireTask<'_>>(entry) {
            Some(task) if task.state.as_ref().is_some_and(|state| !state.is_terminal()) => {
                let id = TaskId::from(task.id.as_deref().unwrap_or_default());
                let mut task = read_task(&task, invalid_entries);
                let mut key = id.clone();
                if tasks.get(&id).is_some() {
                    key = TaskId::from(format!("{id} ({number})"));
                    task.duplicate_id = Some(id);
                }
                tasks.insert(key, task);
            }
            Some(_) => {}
            None => *invalid_entries += 1,
        }
    }
    tasks
}

fn read_task(task: &WireTask<'_>, invalid_entries: &mut u64) -> Task {
    let state = task.state.clone().unwrap_or_default();
    let statuses = read_each::<WireStatus>(task.statuses.as_deref(), invalid_entries);
    let labels = read_each::<Label>(task.labels.as_deref(), invalid_entries);
    let newest = statuses.iter().filter_map(|status| {
        Some(Status {
            state: status.state.as_ref()?,
            timestamp: status.timestamp.unwrap_or_default(),
            labels: status.labels.as_deref().unwrap_or_default(),
            container: status.container_status.as_ref(),
        })
    });
    let ports = task
        .resources
        .as_ref()
        .and_then(|resources| resources.ports.as_deref());
    Task {
        name: task.name.as_deref().unwrap_or_default().into(),
        agent: AgentId::from(task.slave_id.as_deref().unwrap_or_default()),
        running: state == TaskState::Running,
        is_staging: is_staging(&state),
        ports: port_ranges(ports.unwrap_or_default()).into(),
        discovery: task
            .discovery
            .as_ref()
            .and_then(|info| discovery(info, invalid_entries))
            .map(Box::new),
        addresses: Addresses::newest(newest),
        healthy: newest_health(
            statuses
                .iter()
                .map(|it| (it.timestamp.unwrap_or_default(), it.healthy)),
        ),
        duplicate_id: None,
        weights: weights(
            labels
                .iter()
                .filter_map(|label| Some((&*label.key, label.value.as_deref()?))),
        ),
    }
}

/// The valid entries of a list; counts the others.
fn read_each<'d, T: Deserialize<'d>>(entries: Option<&[&'d RawValue]>, invalid_entries: &mut u64) -> Vec<T> {
    let entries = entries.unwrap_or_default();
    let read: Vec<T> = entries.iter().copied().filter_map(readable).collect();
    *invalid_entries += (entries.len() - read.len()) as u64;
    read
}

fn discovery(info: &WireDiscovery<'_>, invalid_entries: &mut u64) -> Option<Discovery> {
    let name = info.name.clone().filter(|name| !name.is_empty())?;
    let ports = info.ports.as_ref().and_then(|ports| ports.ports.as_deref());
    let ports = read_each::<Port>(ports, invalid_entries)
        .into_iter()
        .map(|port| NamedPort {
            number: port.number.unwrap_or_default(),
            protocol: port.protocol.unwrap_or_default(),
            name: port.name.unwrap_or_default(),
        });
    Some(Discovery {
        name,
        ports: ports.collect(),
    })
}

/// Parses ranges such as `[31000-31001, 31010-31010]`. Invalid ranges are skipped.
fn port_ranges(text: &str) -> Vec<(u64, u64)> {
    let text = text.strip_prefix('[').unwrap_or(text);
    let text = text.split(']').next().unwrap_or_default();
    let ranges = text.split(',').filter_map(|range| {
        let (first, last) = range.strip_prefix(' ').unwrap_or(range).split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    ranges.collect()
}

#[cfg(test)]
mod tests;
