//! All records by framework and task, made when they are asked for: the shape of `/v1/enumerate`.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

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

/// All records by framework and task, one framework after the other.
pub fn frameworks(zone: &Zone) -> impl Iterator<Item = ListedFramework> + '_ {
    let made_from = zone.made_from();
    let (cluster, rules) = (&made_from.cluster, &made_from.rules);
    let mut seen = HashSet::new();
    cluster.frameworks.iter().map(move |(id, framework)| {
        let part = rules.part(&framework.name);
        let tasks = cluster.tasks.get(id).into_iter().flat_map(|tasks| tasks.iter());
        let listed = tasks.filter_map(|(id, task)| {
            let Made::Records(lines) = of_task(made_from, &part, id, task) else {
                return None;
            };
            let records = lines.into_iter().map(|line| match line {
                Line::Record(record) => Listed::Record(record.name, record.value),
                Line::Pointer(name, ip) => Listed::Pointer(name, ip),
            });
            Some(ListedTask {
                name: task.name.clone(),
                id: task.id(id).to_string(),
                records: records.filter(|record| seen.insert(record.clone())).collect(),
            })
        });
        ListedFramework {
            tasks: listed.collect(),
            name: framework.name.clone(),
        }
    })
}
