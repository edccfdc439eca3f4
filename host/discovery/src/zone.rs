//! The zone: every name with its records. Immutable: a change creates a new zone that shares all
//! unchanged parts with the old one, so the cost is proportional to the change.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

mod address_epochs;
mod encoded_srv;
mod journal;
mod node;

pub(crate) use encoded_srv::{EncodedSrv, MAX_ENCODED_TARGETS};
pub use journal::{Journal, Step};
pub use node::{Node, Service, Value};

use crate::cluster::ClusterModel;
use crate::cluster::PersistentMap;
use crate::zone::address_epochs::AddressEpochs;
use crate::zone_config::{ResolvedHosts, ZoneConfig};

/// A resource record. Its name is lower case and ends with a dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The owner name.
    pub name: Arc<str>,
    /// The data.
    pub value: Value,
    /// How long it may be cached, in seconds.
    pub ttl: u32,
}

/// The data that lookups answer from. Names are lower case and end with a dot. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Zone {
    apex: Arc<str>,
    suffix: Arc<str>,
    serial: u32,
    /// Names with records, and empty non-terminals.
    nodes: PersistentMap<Arc<str>, Node>,
    /// Change counters of addresses, by name.
    address_epochs: AddressEpochs,
    /// PTR names by address, with reference counts; empty without reverse lookups.
    names: PersistentMap<IpAddr, Named>,
    /// The inputs of the records, for enumeration.
    inputs: ZoneInputs,
    journal: Journal,
    records: usize,
    invalid_entries: u64,
}

/// Names with reference counts.
type Named = Arc<[(Arc<str>, u32)]>;

/// The inputs that a zone is built from.
#[derive(Clone, Debug)]
pub(crate) struct ZoneInputs {
    pub(crate) cluster: ClusterModel,
    pub(crate) hosts: Arc<ResolvedHosts>,
    pub(crate) zone_config: Arc<ZoneConfig>,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub enum ZoneLookup<'z> {
    /// The name has records, perhaps of other types than the query's.
    Node(&'z Node),
    /// The name exists without records of its own.
    EmptyNonTerminal,
    /// The name does not exist.
    NoSuchName,
    /// The name is outside the zone.
    Outside,
}

impl Zone {
    /// A zone without records.
    pub(crate) fn empty(zone_config: Arc<ZoneConfig>) -> Self {
        Self {
            apex: format!("{}.", zone_config.domain).into(),
            suffix: format!(".{}.", zone_config.domain).into(),
            serial: 0,
            nodes: PersistentMap::default(),
            address_epochs: AddressEpochs::default(),
            names: PersistentMap::default(),
            inputs: ZoneInputs {
                cluster: ClusterModel::default(),
                hosts: Arc::default(),
                zone_config,
            },
            journal: Journal::default(),
            records: 0,
            invalid_entries: 0,
        }
    }

    /// Looks up a name, which must be lower case and end with a dot.
    pub fn find(&self, name: &str) -> ZoneLookup<'_> {
        if !self.holds(name) {
            return ZoneLookup::Outside;
        }
        match self.nodes.get(name) {
            Some(node) if node.has_records() => ZoneLookup::Node(node),
            Some(_) => ZoneLookup::EmptyNonTerminal,
            None if name == &*self.apex => ZoneLookup::EmptyNonTerminal,
            None => ZoneLookup::NoSuchName,
        }
    }

    /// The records of a name of this zone.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes
            .get(name)
            .filter(|node| node.has_records() && self.holds(name))
    }

    /// Whether a name is the domain or below it.
    pub fn holds(&self, name: &str) -> bool {
        name.ends_with(&*self.suffix) || name == &*self.apex
    }

    /// The domain with its trailing dot.
    pub fn apex(&self) -> &str {
        &self.apex
    }

    /// The serial, which grows with every published zone.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// The number of names, empty non-terminals included.
    pub(crate) fn names(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// The number of records.
    pub fn records(&self) -> usize {
        self.records
    }

    /// The number of invalid entries, which have no records.
    pub fn invalid_entries(&self) -> u64 {
        self.invalid_entries
    }

    /// Every name below the domain (and its apex) that has records.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.nodes
            .iter()
            .filter(|(name, node)| node.has_records() && self.holds(name))
    }

    /// Every name that has records, including names outside the domain, such as the name server's.
    pub fn iter_all(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.nodes.iter().filter(|(_, node)| node.has_records())
    }

    /// The PTR name of an address; none if several names have it, or reverse lookups are off.
    pub fn name_of(&self, ip: IpAddr) -> Option<&str> {
        match &**self.names.get(&ip)? {
            [(name, _)] => Some(name),
            _ => None,
        }
    }

    /// The last changes, for incremental transfers.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The inputs of the records.
    pub(crate) fn inputs(&self) -> &ZoneInputs {
        &self.inputs
    }
}

/// A change of a zone in progress.
#[derive(Debug)]
pub(crate) struct ZoneBuilder {
    zone: Zone,
    step: Step,
    /// The size of the journal in records.
    journal_records: usize,
    /// Whether any record changed.
    changed: bool,
    /// Names whose TTL changed, with their old TTL.
    changed_ttls: HashMap<Arc<str>, u32>,
}

impl ZoneBuilder {
    /// Begins a change of a zone, which stays in service. The journal keeps up to
    /// `journal_records`.
    pub(crate) fn of(zone: &Zone, journal_records: usize) -> Self {
        Self {
            zone: zone.clone(),
            step: Step::default(),
            journal_records,
            changed: false,
            changed_ttls: HashMap::new(),
        }
    }

    /// Adds a record, or another reference to it.
    pub(crate) fn add(&mut self, record: &Record) {
        let mut new = None;
        let node = match self.zone.nodes.get_mut(&*record.name) {
            Some(node) => node,
            None => new.insert(Node::default()),
        };
        if node.ttl() != record.ttl && node.has_records() {
            self.changed = true;
            self.zone.address_epochs.bump(&record.name);
            if self.journal_records > 0 {
                self.changed_ttls
                    .entry(Arc::clone(&record.name))
                    .or_insert(node.ttl());
            }
        }
        node.set_ttl(record.ttl);
        if node.add(record.value.clone()) {
            self.zone.records += 1;
            self.mark_changed(record);
            if self.journal_records > 0 {
                self.step.added.push(record.clone());
            }
        }
        if let Some(node) = new {
            self.zone.nodes.insert(Arc::clone(&record.name), node);
            self.add_parents(&record.name);
        }
    }

    /// Removes one reference to a record.
    pub(crate) fn remove(&mut self, record: &Record) {
        let Some(node) = self.zone.nodes.get_mut(&*record.name) else {
            return;
        };
        if node.remove(&record.value) {
            let is_unused = node.is_unused();
            self.zone.records -= 1;
            if is_unused {
                self.zone.nodes.remove(&*record.name);
                self.remove_empty_parents(&record.name);
            }
            self.mark_changed(record);
            if self.journal_records > 0 {
                self.step.removed.push(record.clone());
            }
        }
    }

    /// Marks the zone, and the name's addresses if the record is one, as changed.
    fn mark_changed(&mut self, record: &Record) {
        self.changed = true;
        if let Value::Address(_) = record.value {
            self.zone.address_epochs.bump(&record.name);
        }
    }

    /// Adds a PTR name of an address, or another reference to it.
    pub(crate) fn add_ptr(&mut self, ip: IpAddr, name: &Arc<str>) {
        let mut names = self
            .zone
            .names
            .get(&ip)
            .map_or_else(Vec::new, |names| names.to_vec());
        match names.iter_mut().find(|(existing, _)| existing == name) {
            Some((_, times)) => *times += 1,
            None => names.push((Arc::clone(name), 1)),
        }
        self.zone.names.insert(ip, names.into());
    }

    /// Removes one reference to a PTR name of an address.
    pub(crate) fn remove_ptr(&mut self, ip: IpAddr, name: &Arc<str>) {
        let Some(names) = self.zone.names.get(&ip) else {
            return;
        };
        let mut names = names.to_vec();
        if let Some(index) = names.iter().position(|(existing, _)| existing == name) {
            names[index].1 -= 1;
            if names[index].1 == 0 {
                names.remove(index);
            }
        }
        if names.is_empty() {
            self.zone.names.remove(&ip);
        } else {
            self.zone.names.insert(ip, names.into());
        }
    }

    /// Updates the number of invalid entries.
    pub(crate) fn count_invalid(&mut self, before: u64, now: u64) {
        self.zone.invalid_entries = self.zone.invalid_entries.saturating_sub(before) + now;
    }

    /// The zone after the change; its serial stays if no record changed.
    pub(crate) fn build(mut self, inputs: ZoneInputs, serial: u32) -> Zone {
        self.zone.inputs = inputs;
        self.journal_ttl_changes();
        if self.zone.serial == 0 || self.changed {
            self.step.from = self.zone.serial;
            self.step.to = serial;
            self.zone.journal.push(self.step, self.journal_records);
            self.zone.serial = serial;
        }
        self.zone
    }

    /// Journals the records of names whose TTL changed, except those that were just added.
    fn journal_ttl_changes(&mut self) {
        let changed_ttls = std::mem::take(&mut self.changed_ttls);
        let new: HashSet<Record> = if changed_ttls.is_empty() {
            HashSet::new()
        } else {
            self.step.added.iter().cloned().collect()
        };
        for (name, before) in changed_ttls {
            let Some(node) = self.zone.nodes.get(&*name).filter(|node| node.ttl() != before) else {
                continue;
            };
            for value in node.values() {
                let record = |ttl| Record {
                    name: Arc::clone(&name),
                    value: value.clone(),
                    ttl,
                };
                if !new.contains(&record(node.ttl())) {
                    self.step.removed.push(record(before));
                    self.step.added.push(record(node.ttl()));
                }
            }
        }
    }

    /// Adds the missing parents of a new name, up to the apex, as empty non-terminals.
    fn add_parents(&mut self, name: &str) {
        let mut child = name;
        while let Some(parent) = self.parent(child) {
            if let Some(node) = self.zone.nodes.get_mut(parent) {
                node.add_descendant();
                return;
            }
            let mut node = Node::default();
            node.add_descendant();
            self.zone.nodes.insert(parent.into(), node);
            child = parent;
        }
    }

    /// Removes the parents of a removed name that have no records and no other names below them.
    fn remove_empty_parents(&mut self, name: &str) {
        let mut child = name;
        while let Some(parent) = self.parent(child) {
            let Some(node) = self.zone.nodes.get_mut(parent) else {
                return;
            };
            node.remove_descendant();
            if !node.is_unused() {
                return;
            }
            self.zone.nodes.remove(parent);
            child = parent;
        }
    }

    /// The parent of a name; none for the apex and names outside the zone.
    fn parent<'n>(&self, name: &'n str) -> Option<&'n str> {
        if !name.ends_with(&*self.zone.suffix) {
            return None;
        }
        name.split_once('.').map(|(_, parent)| parent)
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
