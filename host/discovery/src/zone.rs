//! The zone: every name with its records, as lookups read it. Immutable; a change is a new zone.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use hickory_proto::rr::Name;
use serde::Serialize;
use serde::ser::SerializeStruct;

mod distinct;

use distinct::Distinct;

/// Everything that is answered from. Names are lower case, with their trailing dot.
#[derive(Debug)]
pub struct Zone {
    apex: String,
    suffix: String,
    serial: u32,
    nodes: HashMap<Arc<str>, Node>,
    /// Names that have no records but names below them.
    branches: HashSet<Box<str>>,
    frameworks: Vec<ListedFramework>,
    records: usize,
    skipped: u64,
}

/// The records of one name.
#[derive(Debug, Default)]
pub struct Node {
    /// IPv4 addresses.
    pub a: Vec<Ipv4Addr>,
    /// IPv6 addresses.
    pub aaaa: Vec<Ipv6Addr>,
    /// Services.
    pub srv: Vec<Service>,
}

/// Where a service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// A name with addresses, with its trailing dot.
    pub target: Arc<str>,
    /// As it was given: what is no port number is answered over HTTP alone, as ever.
    pub port: u32,
    /// The target for DNS; none when it has a label that is too long or empty.
    pub wire: Option<Name>,
}

/// What a lookup of a name finds.
#[derive(Clone, Copy, Debug)]
pub enum Found<'z> {
    /// Records, perhaps of other types than asked for.
    Node(&'z Node),
    /// The name exists and has no records of its own.
    Branch,
    /// The name does not exist.
    Nothing,
    /// The name is none of this zone's.
    Outside,
}

impl Zone {
    /// What there is under a name, which must be lower case and end with a dot.
    pub fn find(&self, name: &str) -> Found<'_> {
        if !self.holds(name) {
            return Found::Outside;
        }
        match self.nodes.get(name) {
            Some(node) => Found::Node(node),
            None if name == self.apex || self.branches.contains(name) => Found::Branch,
            None => Found::Nothing,
        }
    }

    /// The records of a name of this zone.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name).filter(|_| self.holds(name))
    }

    fn holds(&self, name: &str) -> bool {
        name.ends_with(&self.suffix) || name == self.apex
    }

    /// The domain with its trailing dot.
    pub fn apex(&self) -> &str {
        &self.apex
    }

    /// Grows with every zone that is served.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// All records by framework and task.
    pub fn frameworks(&self) -> &[ListedFramework] {
        &self.frameworks
    }

    /// How many records there are.
    pub fn records(&self) -> usize {
        self.records
    }

    /// How many entries made no sense and have no records.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// A framework with its tasks, for listing.
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
    /// In the order they were made.
    pub records: Vec<Listed>,
}

/// One record, for listing: `{"name": …, "host": …, "rtype": …}`.
#[derive(Debug)]
pub struct Listed {
    name: Arc<str>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Address(IpAddr),
    Service(Arc<str>, u32),
}

impl Serialize for Listed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (host, rtype) = match &self.value {
            Value::Address(ip) => (ip.to_string(), if ip.is_ipv4() { "A" } else { "AAAA" }),
            Value::Service(target, port) => (format!("{target}:{port}"), "SRV"),
        };
        let mut record = serializer.serialize_struct("Record", 3)?;
        record.serialize_field("name", &*self.name)?;
        record.serialize_field("host", &host)?;
        record.serialize_field("rtype", rtype)?;
        record.end()
    }
}

/// A zone in the making: records are put once each.
#[derive(Debug, Default)]
pub struct Builder {
    nodes: HashMap<Arc<str>, Growing>,
    targets: HashMap<Arc<str>, Option<Name>>,
    frameworks: Vec<ListedFramework>,
    /// Entries that were left out.
    pub skipped: u64,
}

#[derive(Debug, Default)]
struct Growing {
    a: Distinct<Ipv4Addr>,
    aaaa: Distinct<Ipv6Addr>,
    srv: Distinct<(Arc<str>, u32)>,
}

impl Builder {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// An address record. Whether it was new.
    pub fn address(&mut self, name: &str, ip: IpAddr) -> bool {
        self.listed_address(name, ip).is_some()
    }

    /// A service record. Whether it was new.
    pub fn service(&mut self, name: &str, target: &Arc<str>, port: u32) -> bool {
        self.listed_service(name, target, port).is_some()
    }

    /// An address record, and its line when it was new.
    pub fn listed_address(&mut self, name: &str, ip: IpAddr) -> Option<Listed> {
        let (name, node) = self.node(name);
        let new = match ip {
            IpAddr::V4(ip) => node.a.insert(ip),
            IpAddr::V6(ip) => node.aaaa.insert(ip),
        };
        new.then_some(Listed {
            name,
            value: Value::Address(ip),
        })
    }

    /// A service record, and its line when it was new.
    pub fn listed_service(&mut self, name: &str, target: &Arc<str>, port: u32) -> Option<Listed> {
        if !self.targets.contains_key(target) {
            self.targets.insert(Arc::clone(target), wire_name(target));
        }
        let (name, node) = self.node(name);
        let new = node.srv.insert((Arc::clone(target), port));
        new.then_some(Listed {
            name,
            value: Value::Service(Arc::clone(target), port),
        })
    }

    /// A framework with its tasks.
    pub fn list(&mut self, framework: ListedFramework) {
        self.frameworks.push(framework);
    }

    fn node(&mut self, name: &str) -> (Arc<str>, &mut Growing) {
        let name = self
            .nodes
            .get_key_value(name)
            .map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name));
        let node = self.nodes.entry(Arc::clone(&name)).or_default();
        (name, node)
    }

    /// The zone of a domain (without dots around it).
    pub fn build(self, domain: &str, serial: u32) -> Zone {
        let targets = self.targets;
        let finish = |growing: Growing| {
            let service = |(target, port): (Arc<str>, u32)| {
                let wire = targets.get(&target).cloned().flatten();
                Service { target, port, wire }
            };
            Node {
                a: growing.a.into_vec(),
                aaaa: growing.aaaa.into_vec(),
                srv: growing.srv.into_vec().into_iter().map(service).collect(),
            }
        };
        let nodes: HashMap<_, _> = self
            .nodes
            .into_iter()
            .map(|(name, growing)| (name, finish(growing)))
            .collect();
        let apex = format!("{domain}.");
        let suffix = format!(".{apex}");
        Zone {
            branches: branches(nodes.keys(), &apex, &suffix),
            records: nodes
                .values()
                .map(|node| node.a.len() + node.aaaa.len() + node.srv.len())
                .sum(),
            apex,
            suffix,
            serial,
            nodes,
            frameworks: self.frameworks,
            skipped: self.skipped,
        }
    }
}

/// Every name between a name with records and the apex.
fn branches<'n>(names: impl Iterator<Item = &'n Arc<str>>, apex: &str, suffix: &str) -> HashSet<Box<str>> {
    let mut branches = HashSet::new();
    for name in names.filter(|name| name.ends_with(suffix)) {
        let mut rest: &str = name;
        while let Some((_, above)) = rest.split_once('.') {
            if above == apex || branches.contains(above) {
                break;
            }
            branches.insert(Box::from(above));
            rest = above;
        }
    }
    branches
}

/// A name as DNS carries it, whatever characters it has; none when a label is empty or longer than 63 bytes, or the whole
/// longer than 255.
pub fn wire_name(name: &str) -> Option<Name> {
    let labels = name.strip_suffix('.')?.split('.');
    if labels.clone().any(str::is_empty) {
        return None;
    }
    Name::from_labels(labels.map(str::as_bytes)).ok()
}

#[cfg(test)]
mod tests;
