//! All records by framework and task, made when they are asked for: the shape of `/v1/enumerate`.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use transom_cluster::{FrameworkId, TaskId};

use crate::cluster::Ordered;
use crate::records::{Line, Made, of_task};
use crate::zone::{Service, Value, Zone};

/// A framework with its tasks.
#[derive(Debug, Serialize)]
pub struct ListedFramework {
    /// Its tasks that have records.
    pub tasks: Vec<ListedTask>,
    /// Its name as given.
    pub name: String,
}

/// A task with the records that it was the first to have.
#[derive(Debug, Serialize)]
pub struct ListedTask {
    /// Its name as given.
    pub name: String,
    /// Its id.
    pub id: String,
    /// In the order they are made; none when others had all of them before.
    #[serde(serialize_with = "null_when_empty")]
    pub records: Vec<Listed>,
}

fn null_when_empty<S: Serializer>(records: &[Listed], serializer: S) -> Result<S::Ok, S::Error> {
    (!records.is_empty()).then_some(records).serialize(serializer)
}

/// One record: `{"name": …, "host": …, "rtype": …}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listed {
    /// A, AAAA or SRV.
    Record(Arc<str>, Value),
    /// A name of an address.
    Pointer(Arc<str>, IpAddr),
}

impl Serialize for Listed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, host, rtype) = match self {
            Self::Record(name, Value::Address(ip)) => {
                (name, ip.to_string(), if ip.is_ipv4() { "A" } else { "AAAA" })
            }
            Self::Record(name, Value::Service(Service { target, port, .. })) => {
                (name, format!("{target}:{port}"), "SRV")
            }
            Self::Pointer(name, ip) => (name, ip.to_string(), "PTR"),
        };
        let mut record = serializer.serialize_struct("Record", 3)?;
        record.serialize_field("name", &**name)?;
        record.serialize_field("host", &host)?;
        record.serialize_field("rtype", rtype)?;
        record.end()
    }
}

/// Lists one task after the other, so that a large cluster's list is never there as a whole.
#[derive(Debug)]
pub struct Lister {
    zone: Arc<Zone>,
    /// The records listed so far, as their hashes: of two that had the same by accident, which does not happen once in a
    /// million listings of a large cluster, the later one would be left out.
    seen: HashSet<u64>,
}

impl Lister {
    /// Begins.
    pub fn new(zone: Arc<Zone>) -> Self {
        Self {
            zone,
            seen: HashSet::new(),
        }
    }

    /// Frameworks in their order.
    pub fn frameworks(&self) -> Vec<FrameworkId> {
        let cluster = &self.zone.made_from().cluster;
        cluster.frameworks.iter().map(|(id, _)| id.clone()).collect()
    }

    /// A framework's name as given.
    pub fn name(&self, framework: &FrameworkId) -> &str {
        let framework = self.zone.made_from().cluster.frameworks.get(framework);
        framework.map_or("", |framework| &framework.name)
    }

    /// A framework's tasks in their order.
    pub fn tasks(&self, framework: &FrameworkId) -> Vec<TaskId> {
        let tasks = self.zone.made_from().cluster.tasks.get(framework);
        let tasks = tasks.into_iter().flat_map(Ordered::iter);
        tasks.map(|(id, _)| id.clone()).collect()
    }

    /// A task that has records, with those that no task before it had.
    pub fn task(&mut self, framework: &FrameworkId, id: &TaskId) -> Option<ListedTask> {
        let made_from = self.zone.made_from();
        let (cluster, rules) = (&made_from.cluster, &made_from.rules);
        let part = rules.part(&cluster.frameworks.get(framework)?.name);
        let task = cluster.tasks.get(framework)?.get(id)?;
        let Made::Records(lines) = of_task(made_from, &part, id, task) else {
            return None;
        };
        let records = lines.into_iter().map(|line| match line {
            Line::Record(record) => Listed::Record(record.name, record.value),
            Line::Pointer(name, ip) => Listed::Pointer(name, ip),
        });
        let seen = &mut self.seen;
        Some(ListedTask {
            name: task.name.to_string(),
            id: task.id(id).to_string(),
            records: records
                .filter(|record| seen.insert(fingerprint(record)))
                .collect(),
        })
    }
}

/// All records by framework and task, one framework after the other.
pub fn frameworks(zone: &Zone) -> impl Iterator<Item = ListedFramework> + use<> {
    let mut lister = Lister::new(Arc::new(zone.clone()));
    lister
        .frameworks()
        .into_iter()
        .map(move |framework| ListedFramework {
            tasks: lister
                .tasks(&framework)
                .iter()
                .filter_map(|task| lister.task(&framework, task))
                .collect(),
            name: lister.name(&framework).to_owned(),
        })
}

/// What a record that was listed before is known by.
fn fingerprint(record: &Listed) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hasher.finish()
}
