//! The zone: every name with its records, as lookups read it. Immutable; a change is a new zone, which shares with the one
//! before it all that did not change, so that it costs as much as the change and no more.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

mod journal;
mod node;
mod ready;
mod versions;

pub use journal::{Journal, Step};
pub use node::{Node, Service, Value};
pub(crate) use ready::{MOST_TARGETS, Ready};

use crate::cluster::Cluster;
use crate::map::Map;
use crate::rules::{Hosts, Rules};
use crate::zone::versions::Versions;

/// A record and its name, which is lower case where DNS is to find it, with its trailing dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its name.
    pub name: Arc<str>,
    /// What it says.
    pub value: Value,
    /// How long it may be kept, in seconds.
    pub ttl: u32,
}

/// Everything that is answered from. Names are lower case, with their trailing dot. A clone costs nothing.
#[derive(Clone, Debug)]
pub struct Zone {
    apex: Arc<str>,
    suffix: Arc<str>,
    serial: u32,
    /// Names with records, and those that only have names below them.
    nodes: Map<Arc<str>, Node>,
    /// How often addresses changed.
    versions: Versions,
    /// Names of an address, where reverse lookups are on: how often each was put.
    names: Map<IpAddr, Named>,
    /// What the records are made from, for listing them.
    made_from: MadeFrom,
    journal: Journal,
    records: usize,
    skipped: u64,
}

/// Names, and how often each was put.
type Named = Arc<[(Arc<str>, u32)]>;

/// What a zone's records are made from.
#[derive(Clone, Debug)]
pub(crate) struct MadeFrom {
    pub(crate) cluster: Cluster,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) rules: Arc<Rules>,
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
    /// A zone without records: that of a cluster that nothing is known of.
    pub(crate) fn empty(rules: Arc<Rules>) -> Self {
        Self {
            apex: format!("{}.", rules.domain).into(),
            suffix: format!(".{}.", rules.domain).into(),
            serial: 0,
            nodes: Map::default(),
            versions: Versions::default(),
            names: Map::default(),
            made_from: MadeFrom {
                cluster: Cluster::default(),
                hosts: Arc::default(),
                rules,
            },
            journal: Journal::default(),
            records: 0,
            skipped: 0,
        }
    }

    /// What there is under a name, which must be lower case and end with a dot.
    pub fn find(&self, name: &str) -> Found<'_> {
        if !self.holds(name) {
            return Found::Outside;
        }
        match self.nodes.get(name) {
            Some(node) if node.has_records() => Found::Node(node),
            Some(_) => Found::Branch,
            None if name == &*self.apex => Found::Branch,
            None => Found::Nothing,
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

    /// Grows with every zone that is served.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// How many records there are.
    pub fn records(&self) -> usize {
        self.records
    }

    /// How many entries made no sense and have no records.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Every name below the domain (and its apex) that has records.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.nodes
            .iter()
            .filter(|(name, node)| node.has_records() && self.holds(name))
    }

    /// Every name that has records, also one that is not below the domain, as the name server's may be.
    pub fn iter_all(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.nodes.iter().filter(|(_, node)| node.has_records())
    }

    /// The one name that has this address; none where several have, or reverse lookups are off.
    pub fn name_of(&self, ip: IpAddr) -> Option<&str> {
        match &**self.names.get(&ip)? {
            [(name, _)] => Some(name),
            _ => None,
        }
    }

    /// The last changes, for those who follow the zone by transfers.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What the records were made from.
    pub(crate) fn made_from(&self) -> &MadeFrom {
        &self.made_from
    }
}

/// A zone that is being changed.
#[derive(Debug)]
pub(crate) struct Edit {
    zone: Zone,
    step: Step,
    /// Records of the last changes that are remembered.
    kept: usize,
    /// Whether any record is another one.
    changed: bool,
    /// Names whose records may be kept for another time than before, and what it was.
    retimed: HashMap<Arc<str>, u32>,
}

impl Edit {
    /// Begins a change of a zone, which goes on serving. Steps of up to `kept` records altogether are remembered.
    pub(crate) fn of(zone: &Zone, kept: usize) -> Self {
        Self {
            zone: zone.clone(),
            step: Step::default(),
            kept,
            changed: false,
            retimed: HashMap::new(),
        }
    }

    /// Puts a record, once more if it is there.
    pub(crate) fn put(&mut self, record: &Record) {
        let mut new = None;
        let node = match self.zone.nodes.get_mut(&*record.name) {
            Some(node) => node,
            None => new.insert(Node::default()),
        };
        if node.ttl() != record.ttl && node.has_records() {
            self.changed = true;
            self.zone.versions.bump(&record.name);
            if self.kept > 0 {
                self.retimed.entry(Arc::clone(&record.name)).or_insert(node.ttl());
            }
        }
        node.set_ttl(record.ttl);
        if node.put(record.value.clone()) {
            self.zone.records += 1;
            self.is_another(record);
            if self.kept > 0 {
                self.step.added.push(record.clone());
            }
        }
        if let Some(node) = new {
            self.zone.nodes.insert(Arc::clone(&record.name), node);
            self.grow(&record.name);
        }
    }

    /// Takes a record out, once.
    pub(crate) fn take(&mut self, record: &Record) {
        let Some(node) = self.zone.nodes.get_mut(&*record.name) else {
            return;
        };
        if node.take(&record.value) {
            let gone = node.is_gone();
            self.zone.records -= 1;
            if gone {
                self.zone.nodes.remove(&*record.name);
                self.shrink(&record.name);
            }
            self.is_another(record);
            if self.kept > 0 {
                self.step.removed.push(record.clone());
            }
        }
    }

    /// A record is there that was not, or the other way round.
    fn is_another(&mut self, record: &Record) {
        self.changed = true;
        if let Value::Address(_) = record.value {
            self.zone.versions.bump(&record.name);
        }
    }

    /// Puts a name of an address.
    pub(crate) fn put_name(&mut self, ip: IpAddr, name: &Arc<str>) {
        let mut names = self
            .zone
            .names
            .get(&ip)
            .map_or_else(Vec::new, |names| names.to_vec());
        match names.iter_mut().find(|(there, _)| there == name) {
            Some((_, times)) => *times += 1,
            None => names.push((Arc::clone(name), 1)),
        }
        self.zone.names.insert(ip, names.into());
    }

    /// Takes a name of an address out, once.
    pub(crate) fn take_name(&mut self, ip: IpAddr, name: &Arc<str>) {
        let Some(names) = self.zone.names.get(&ip) else {
            return;
        };
        let mut names = names.to_vec();
        if let Some(place) = names.iter().position(|(there, _)| there == name) {
            names[place].1 -= 1;
            if names[place].1 == 0 {
                names.remove(place);
            }
        }
        if names.is_empty() {
            self.zone.names.remove(&ip);
        } else {
            self.zone.names.insert(ip, names.into());
        }
    }

    /// So many entries more, or fewer, make no sense.
    pub(crate) fn skip(&mut self, before: u64, now: u64) {
        self.zone.skipped = self.zone.skipped.saturating_sub(before) + now;
    }

    /// The zone after the change; where no record is another one, its serial stays.
    pub(crate) fn done(mut self, made_from: MadeFrom, serial: u32) -> Zone {
        self.zone.made_from = made_from;
        self.retime();
        if self.zone.serial == 0 || self.changed {
            self.step.from = self.zone.serial;
            self.step.to = serial;
            self.zone.journal.push(self.step, self.kept);
            self.zone.serial = serial;
        }
        self.zone
    }

    /// Remembers of names with another time that their records are other ones; those that are new anyway are remembered so.
    fn retime(&mut self) {
        let retimed = std::mem::take(&mut self.retimed);
        let new: HashSet<Record> = if retimed.is_empty() {
            HashSet::new()
        } else {
            self.step.added.iter().cloned().collect()
        };
        for (name, before) in retimed {
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

    /// A name that was not there is: so are those above it, up to the apex.
    fn grow(&mut self, name: &str) {
        let mut rest = name;
        while let Some(above) = self.above(rest) {
            if let Some(node) = self.zone.nodes.get_mut(above) {
                node.grow_below();
                return;
            }
            let mut node = Node::default();
            node.grow_below();
            self.zone.nodes.insert(above.into(), node);
            rest = above;
        }
    }

    /// A name is not there any more: nor are those above it that had nothing else.
    fn shrink(&mut self, name: &str) {
        let mut rest = name;
        while let Some(above) = self.above(rest) {
            let Some(node) = self.zone.nodes.get_mut(above) else {
                return;
            };
            node.shrink_below();
            if !node.is_gone() {
                return;
            }
            self.zone.nodes.remove(above);
            rest = above;
        }
    }

    /// The name above one that is below the apex.
    fn above<'n>(&self, name: &'n str) -> Option<&'n str> {
        if !name.ends_with(&*self.zone.suffix) {
            return None;
        }
        name.split_once('.').map(|(_, above)| above)
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
