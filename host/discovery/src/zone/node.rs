//! The records of one name in little memory: nearly every name has one record.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::Zone;
use super::encoded_srv::{EncodedSrv, MAX_ENCODED_TARGETS, Memo};

/// Where a service is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// A name with addresses, with its trailing dot.
    pub target: Arc<str>,
    /// As given; a number above 65535 is served only over HTTP, as in mesos-dns.
    pub port: u32,
    /// The SRV weight.
    pub weight: u16,
}

/// The data of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// An A or AAAA record.
    Address(IpAddr),
    /// An SRV record.
    Service(Service),
}

/// The records of one name.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The number of names directly below this one.
    descendants: u32,
    /// The TTL in seconds.
    ttl: u32,
    records: RecordSet,
}

#[derive(Clone, Debug, Default)]
enum RecordSet {
    #[default]
    Empty,
    /// One record with its reference count.
    A(Ipv4Addr, u32),
    Aaaa(Ipv6Addr, u32),
    Srv(Service, u32),
    /// Shared by zones in which they are equal.
    Several(Arc<RecordVec>),
}

/// Records in the order in which they were added.
#[derive(Clone, Debug, Default)]
struct RecordVec {
    a: Vec<Ipv4Addr>,
    aaaa: Vec<Ipv6Addr>,
    srv: Vec<Service>,
    /// Records with more than one reference, and how many more.
    repeats: Vec<(Value, u32)>,
    /// SRV records in wire form, encoded at the first query.
    encoded: Memo,
}

impl Node {
    /// IPv4 addresses.
    pub fn a(&self) -> &[Ipv4Addr] {
        match &self.records {
            RecordSet::A(ip, _) => std::slice::from_ref(ip),
            RecordSet::Several(several) => &several.a,
            _ => &[],
        }
    }

    /// IPv6 addresses.
    pub fn aaaa(&self) -> &[Ipv6Addr] {
        match &self.records {
            RecordSet::Aaaa(ip, _) => std::slice::from_ref(ip),
            RecordSet::Several(several) => &several.aaaa,
            _ => &[],
        }
    }

    /// Services.
    pub fn srv(&self) -> &[Service] {
        match &self.records {
            RecordSet::Srv(service, _) => std::slice::from_ref(service),
            RecordSet::Several(several) => &several.srv,
            _ => &[],
        }
    }

    /// The data of all records.
    pub(super) fn values(&self) -> impl Iterator<Item = Value> {
        let a = self.a().iter().map(|ip| Value::Address((*ip).into()));
        let aaaa = self.aaaa().iter().map(|ip| Value::Address((*ip).into()));
        a.chain(aaaa)
            .chain(self.srv().iter().cloned().map(Value::Service))
    }

    /// The TTL of its records in seconds.
    pub fn ttl(&self) -> u32 {
        self.ttl
    }

    /// Sets the TTL of its records.
    pub(super) fn set_ttl(&mut self, ttl: u32) {
        if self.ttl != ttl {
            self.ttl = ttl;
            if let RecordSet::Several(several) = &mut self.records {
                Arc::make_mut(several).encoded = Memo::default();
            }
        }
    }

    /// Calls `then` with the encoded SRV records. They exist for 2 to [`MAX_ENCODED_TARGETS`]
    /// services whose targets have at most one address of each kind.
    pub(crate) fn with_encoded_srv<T>(&self, zone: &Zone, then: impl FnOnce(&EncodedSrv) -> T) -> Option<T> {
        match &self.records {
            RecordSet::Several(several) if (2..=MAX_ENCODED_TARGETS).contains(&several.srv.len()) => {
                several.encoded.with(zone, self, then)
            }
            _ => None,
        }
    }

    /// Whether it has records of its own.
    pub fn has_records(&self) -> bool {
        !matches!(self.records, RecordSet::Empty)
    }

    /// Whether there are no records here and no names below.
    pub(super) fn is_unused(&self) -> bool {
        self.descendants == 0 && !self.has_records()
    }

    pub(super) fn add_descendant(&mut self) {
        self.descendants += 1;
    }

    pub(super) fn remove_descendant(&mut self) {
        self.descendants = self.descendants.saturating_sub(1);
    }

    /// Adds a record, or a reference to it. Returns whether it is new.
    pub(super) fn add(&mut self, value: Value) -> bool {
        match (&mut self.records, &value) {
            (RecordSet::Empty, _) => {
                self.records = match value {
                    Value::Address(IpAddr::V4(ip)) => RecordSet::A(ip, 1),
                    Value::Address(IpAddr::V6(ip)) => RecordSet::Aaaa(ip, 1),
                    Value::Service(service) => RecordSet::Srv(service, 1),
                };
                return true;
            }
            (RecordSet::A(ip, times), Value::Address(IpAddr::V4(other))) if ip == other => *times += 1,
            (RecordSet::Aaaa(ip, times), Value::Address(IpAddr::V6(other))) if ip == other => *times += 1,
            (RecordSet::Srv(service, times), Value::Service(other)) if service == other => *times += 1,
            (RecordSet::Several(several), _) => return Arc::make_mut(several).add(value),
            _ => {
                let mut several = RecordVec::of(std::mem::take(&mut self.records));
                let new = several.add(value);
                self.records = RecordSet::Several(Arc::new(several));
                return new;
            }
        }
        false
    }

    /// Removes one reference to a record. Returns whether that was the last one.
    pub(super) fn remove(&mut self, value: &Value) -> bool {
        let times = match (&mut self.records, value) {
            (RecordSet::A(ip, times), Value::Address(IpAddr::V4(other))) if ip == other => times,
            (RecordSet::Aaaa(ip, times), Value::Address(IpAddr::V6(other))) if ip == other => times,
            (RecordSet::Srv(service, times), Value::Service(other)) if service == other => times,
            (RecordSet::Several(several), _) => {
                let several = Arc::make_mut(several);
                let is_last = several.remove(value);
                if several.is_empty() {
                    self.records = RecordSet::Empty;
                }
                return is_last;
            }
            _ => return false,
        };
        *times -= 1;
        let is_last = *times == 0;
        if is_last {
            self.records = RecordSet::Empty;
        }
        is_last
    }
}

impl RecordVec {
    fn of(records: RecordSet) -> Self {
        let mut several = Self::default();
        let (value, times) = match records {
            RecordSet::Empty => return several,
            RecordSet::Several(several) => return Arc::unwrap_or_clone(several),
            RecordSet::A(ip, times) => (Value::Address(ip.into()), times),
            RecordSet::Aaaa(ip, times) => (Value::Address(ip.into()), times),
            RecordSet::Srv(service, times) => (Value::Service(service), times),
        };
        if times > 1 {
            several.repeats.push((value.clone(), times - 1));
        }
        several.add(value);
        several
    }

    fn add(&mut self, value: Value) -> bool {
        self.encoded = Memo::default();
        let new = match &value {
            Value::Address(IpAddr::V4(ip)) => push(&mut self.a, ip),
            Value::Address(IpAddr::V6(ip)) => push(&mut self.aaaa, ip),
            Value::Service(service) => push(&mut self.srv, service),
        };
        if !new {
            match self.repeats.iter_mut().find(|(repeats, _)| *repeats == value) {
                Some((_, times)) => *times += 1,
                None => self.repeats.push((value, 1)),
            }
        }
        new
    }

    fn remove(&mut self, value: &Value) -> bool {
        self.encoded = Memo::default();
        if let Some(index) = self.repeats.iter().position(|(repeats, _)| repeats == value) {
            self.repeats[index].1 -= 1;
            if self.repeats[index].1 == 0 {
                self.repeats.swap_remove(index);
            }
            return false;
        }
        match value {
            Value::Address(IpAddr::V4(ip)) => pull(&mut self.a, ip),
            Value::Address(IpAddr::V6(ip)) => pull(&mut self.aaaa, ip),
            Value::Service(service) => pull(&mut self.srv, service),
        }
    }

    fn is_empty(&self) -> bool {
        self.a.is_empty() && self.aaaa.is_empty() && self.srv.is_empty()
    }
}

fn push<T: Clone + PartialEq>(values: &mut Vec<T>, value: &T) -> bool {
    let new = !values.contains(value);
    if new {
        values.push(value.clone());
    }
    new
}

fn pull<T: PartialEq>(values: &mut Vec<T>, value: &T) -> bool {
    let index = values.iter().position(|existing| existing == value);
    index.map(|index| values.remove(index)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Value {
        Value::Address([10, 0, 0, last].into())
    }

    fn service(port: u32) -> Value {
        Value::Service(Service {
            target: "web.mesos.".into(),
            port,
            weight: 1,
        })
    }

    #[test]
    fn record_stays_until_its_last_reference_is_removed() {
        let mut node = Node::default();
        let steps = [
            (true, address(1), true),
            (true, address(1), false),
            (true, address(2), true),
            (true, service(80), true),
            (true, address(1), false),
            (true, service(80), false),
            (false, address(1), false),
            (false, address(3), false),
            (false, address(1), false),
            (false, address(1), true),
            (false, address(1), false),
            (false, service(80), false),
            (false, service(80), true),
            (false, address(2), true),
        ];
        for (n, (is_add, value, changes)) in steps.into_iter().enumerate() {
            let changed = if is_add {
                node.add(value)
            } else {
                node.remove(&value)
            };
            assert_eq!(changed, changes, "step {n}: {node:?}");
        }
        assert!(node.is_unused());
    }

    #[test]
    fn node_fits_into_48_bytes() {
        assert!(size_of::<Node>() <= 48, "{}", size_of::<Node>());
    }
}
