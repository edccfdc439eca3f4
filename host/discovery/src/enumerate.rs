//! All records by framework and task, generated on request, in the shape of `/v1/enumerate`.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use transom_cluster::{FrameworkId, TaskId};

use crate::cluster::Tasks;
use crate::records::{RecordOrPtr, of_task};
use crate::zone::{Service, Value, Zone};

/// A framework with its tasks.
#[derive(Debug, JsonSchema, Serialize)]
pub struct EnumeratedFramework {
    /// Its tasks that have records.
    pub tasks: Vec<EnumeratedTask>,
    /// Its name as given.
    pub name: String,
}

/// A task with the records that no earlier task had.
#[derive(Debug, JsonSchema, Serialize)]
pub struct EnumeratedTask {
    /// Its name as given.
    pub name: String,
    /// Its id.
    pub id: String,
    /// In the order of generation; empty if earlier tasks had all of them.
    #[serde(serialize_with = "null_when_empty")]
    #[schemars(with = "Option<Vec<RecordDocument>>")]
    pub records: Vec<EnumeratedRecord>,
}

fn null_when_empty<S: Serializer>(records: &[EnumeratedRecord], serializer: S) -> Result<S::Ok, S::Error> {
    (!records.is_empty()).then_some(records).serialize(serializer)
}

/// One record: `{"name": …, "host": …, "rtype": …}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EnumeratedRecord {
    /// A, AAAA or SRV.
    Record(Arc<str>, Value),
    /// A PTR name of an address.
    Ptr(Arc<str>, IpAddr),
}

/// A record of an enumeration.
#[derive(JsonSchema)]
#[schemars(rename = "Record")]
#[expect(dead_code, reason = "only for its schema")]
struct RecordDocument {
    name: String,
    /// An address, or `host:port` of a service.
    host: String,
    #[schemars(extend("enum" = ["A", "AAAA", "SRV", "PTR"]))]
    rtype: String,
}

impl Serialize for EnumeratedRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, host, rtype) = match self {
            Self::Record(name, Value::Address(ip)) => {
                (name, ip.to_string(), if ip.is_ipv4() { "A" } else { "AAAA" })
            }
            Self::Record(name, Value::Service(Service { target, port, .. })) => {
                (name, format!("{target}:{port}"), "SRV")
            }
            Self::Ptr(name, ip) => (name, ip.to_string(), "PTR"),
        };
        let mut record = serializer.serialize_struct("Record", 3)?;
        record.serialize_field("name", &**name)?;
        record.serialize_field("host", &host)?;
        record.serialize_field("rtype", rtype)?;
        record.end()
    }
}

/// Enumerates one task after the other, so that the whole list of a large cluster is never in
/// memory.
#[derive(Debug)]
pub struct Enumerator {
    zone: Arc<Zone>,
    /// Hashes of the records so far. On a collision the later record would be missing; that happens
    /// less than once in a million enumerations of a large cluster.
    seen: HashSet<u64>,
}

impl Enumerator {
    /// Begins an enumeration.
    pub fn new(zone: Arc<Zone>) -> Self {
        Self {
            zone,
            seen: HashSet::new(),
        }
    }

    /// Frameworks in their order.
    pub fn frameworks(&self) -> Vec<FrameworkId> {
        let cluster = &self.zone.inputs().cluster;
        cluster.frameworks.iter().map(|(id, _)| id.clone()).collect()
    }

    /// A framework's name as given.
    pub fn name(&self, framework: &FrameworkId) -> &str {
        let framework = self.zone.inputs().cluster.frameworks.get(framework);
        framework.map_or("", |framework| &framework.name)
    }

    /// A framework's tasks in their order.
    pub fn tasks(&self, framework: &FrameworkId) -> Vec<TaskId> {
        let tasks = self.zone.inputs().cluster.tasks.get(framework);
        let tasks = tasks.into_iter().flat_map(Tasks::iter);
        tasks.map(|(id, _)| id.clone()).collect()
    }

    /// A task that has records, with those that no earlier task had.
    pub fn task(&mut self, framework: &FrameworkId, id: &TaskId) -> Option<EnumeratedTask> {
        let inputs = self.zone.inputs();
        let (cluster, zone_config) = (&inputs.cluster, &inputs.zone_config);
        let labels = zone_config.framework_labels(&cluster.frameworks.get(framework)?.name);
        let task = cluster.tasks.get(framework)?.get(id)?;
        let Ok(Some(lines)) = of_task(inputs, &labels, id, task) else {
            return None;
        };
        let records = lines.into_iter().map(|line| match line {
            RecordOrPtr::Record(record) => EnumeratedRecord::Record(record.name, record.value),
            RecordOrPtr::Ptr(name, ip) => EnumeratedRecord::Ptr(name, ip),
        });
        let seen = &mut self.seen;
        Some(EnumeratedTask {
            name: task.name.to_string(),
            id: task.id(id).to_string(),
            records: records
                .filter(|record| seen.insert(fingerprint(record)))
                .collect(),
        })
    }
}

/// All records by framework and task, one framework after the other.
pub fn frameworks(zone: &Zone) -> impl Iterator<Item = EnumeratedFramework> + use<> {
    let mut enumerator = Enumerator::new(Arc::new(zone.clone()));
    enumerator
        .frameworks()
        .into_iter()
        .map(move |framework| EnumeratedFramework {
            tasks: enumerator
                .tasks(&framework)
                .iter()
                .filter_map(|task| enumerator.task(&framework, task))
                .collect(),
            name: enumerator.name(&framework).to_owned(),
        })
}

/// The hash by which an earlier record is recognised.
fn fingerprint(record: &EnumeratedRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hasher.finish()
}
