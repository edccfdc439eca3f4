//! The records of one name, as small as they can be: nearly every name has one record.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::Zone;
use super::ready::{Kept, MOST_TARGETS, Ready};

/// Where a service is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// A name with addresses, with its trailing dot.
    pub target: Arc<str>,
    /// As it was given: what is no port number is answered over HTTP alone, as ever.
    pub port: u32,
    /// Its share among the services of one name.
    pub weight: u16,
}

/// What a record says.
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
    /// How many names there are right below this one.
    below: u32,
    /// How long they may be kept, in seconds.
    ttl: u32,
    held: Held,
}

#[derive(Clone, Debug, Default)]
enum Held {
    #[default]
    Nothing,
    /// One record, and how often it was put.
    A(Ipv4Addr, u32),
    Aaaa(Ipv6Addr, u32),
    Srv(Service, u32),
    /// Shared by the zones that do not change them.
    Several(Arc<Several>),
}

/// Records in the order they came.
#[derive(Clone, Debug, Default)]
struct Several {
    a: Vec<Ipv4Addr>,
    aaaa: Vec<Ipv6Addr>,
    srv: Vec<Service>,
    /// Those that were put more than once, and how often beyond the first time.
    again: Vec<(Value, u32)>,
    /// Services in wire form, once they were asked for.
    ready: Kept,
}

impl Node {
    /// IPv4 addresses.
    pub fn a(&self) -> &[Ipv4Addr] {
        match &self.held {
            Held::A(ip, _) => std::slice::from_ref(ip),
            Held::Several(several) => &several.a,
            _ => &[],
        }
    }

    /// IPv6 addresses.
    pub fn aaaa(&self) -> &[Ipv6Addr] {
        match &self.held {
            Held::Aaaa(ip, _) => std::slice::from_ref(ip),
            Held::Several(several) => &several.aaaa,
            _ => &[],
        }
    }

    /// Services.
    pub fn srv(&self) -> &[Service] {
        match &self.held {
            Held::Srv(service, _) => std::slice::from_ref(service),
            Held::Several(several) => &several.srv,
            _ => &[],
        }
    }

    /// Everything that its records say.
    pub(super) fn values(&self) -> impl Iterator<Item = Value> {
        let a = self.a().iter().map(|ip| Value::Address((*ip).into()));
        let aaaa = self.aaaa().iter().map(|ip| Value::Address((*ip).into()));
        a.chain(aaaa)
            .chain(self.srv().iter().cloned().map(Value::Service))
    }

    /// How long its records may be kept, in seconds.
    pub fn ttl(&self) -> u32 {
        self.ttl
    }

    /// Lets its records be kept so long.
    pub(super) fn set_ttl(&mut self, ttl: u32) {
        if self.ttl != ttl {
            self.ttl = ttl;
            if let Held::Several(several) = &mut self.held {
                Arc::make_mut(several).ready = Kept::default();
            }
        }
    }

    /// Does something with the services in wire form, where they have one: there is more than one and there are not very many,
    /// and no target has a choice of addresses.
    pub(crate) fn with_ready<T>(&self, zone: &Zone, then: impl FnOnce(&Ready) -> T) -> Option<T> {
        match &self.held {
            Held::Several(several) if (2..=MOST_TARGETS).contains(&several.srv.len()) => {
                several.ready.with(zone, self, then)
            }
            _ => None,
        }
    }

    /// Whether it has records of its own.
    pub fn has_records(&self) -> bool {
        !matches!(self.held, Held::Nothing)
    }

    /// Whether nothing is here or below.
    pub(super) fn is_gone(&self) -> bool {
        self.below == 0 && !self.has_records()
    }

    pub(super) fn grow_below(&mut self) {
        self.below += 1;
    }

    pub(super) fn shrink_below(&mut self) {
        self.below = self.below.saturating_sub(1);
    }

    /// Puts a record, once more if it is there. Whether it was not.
    pub(super) fn put(&mut self, value: Value) -> bool {
        match (&mut self.held, &value) {
            (Held::Nothing, _) => {
                self.held = match value {
                    Value::Address(IpAddr::V4(ip)) => Held::A(ip, 1),
                    Value::Address(IpAddr::V6(ip)) => Held::Aaaa(ip, 1),
                    Value::Service(service) => Held::Srv(service, 1),
                };
                return true;
            }
            (Held::A(ip, times), Value::Address(IpAddr::V4(same))) if ip == same => *times += 1,
            (Held::Aaaa(ip, times), Value::Address(IpAddr::V6(same))) if ip == same => *times += 1,
            (Held::Srv(service, times), Value::Service(same)) if service == same => *times += 1,
            (Held::Several(several), _) => return Arc::make_mut(several).put(value),
            _ => {
                let mut several = Several::of(std::mem::take(&mut self.held));
                let new = several.put(value);
                self.held = Held::Several(Arc::new(several));
                return new;
            }
        }
        false
    }

    /// Takes a record out, once. Whether it is not there any more, having been there.
    pub(super) fn take(&mut self, value: &Value) -> bool {
        let times = match (&mut self.held, value) {
            (Held::A(ip, times), Value::Address(IpAddr::V4(same))) if ip == same => times,
            (Held::Aaaa(ip, times), Value::Address(IpAddr::V6(same))) if ip == same => times,
            (Held::Srv(service, times), Value::Service(same)) if service == same => times,
            (Held::Several(several), _) => {
                let several = Arc::make_mut(several);
                let gone = several.take(value);
                if several.is_empty() {
                    self.held = Held::Nothing;
                }
                return gone;
            }
            _ => return false,
        };
        *times -= 1;
        let gone = *times == 0;
        if gone {
            self.held = Held::Nothing;
        }
        gone
    }
}

impl Several {
    fn of(held: Held) -> Self {
        let mut several = Self::default();
        let (value, times) = match held {
            Held::Nothing => return several,
            Held::Several(several) => return Arc::unwrap_or_clone(several),
            Held::A(ip, times) => (Value::Address(ip.into()), times),
            Held::Aaaa(ip, times) => (Value::Address(ip.into()), times),
            Held::Srv(service, times) => (Value::Service(service), times),
        };
        if times > 1 {
            several.again.push((value.clone(), times - 1));
        }
        several.put(value);
        several
    }

    fn put(&mut self, value: Value) -> bool {
        self.ready = Kept::default();
        let new = match &value {
            Value::Address(IpAddr::V4(ip)) => push(&mut self.a, ip),
            Value::Address(IpAddr::V6(ip)) => push(&mut self.aaaa, ip),
            Value::Service(service) => push(&mut self.srv, service),
        };
        if !new {
            match self.again.iter_mut().find(|(again, _)| *again == value) {
                Some((_, times)) => *times += 1,
                None => self.again.push((value, 1)),
            }
        }
        new
    }

    fn take(&mut self, value: &Value) -> bool {
        self.ready = Kept::default();
        if let Some(place) = self.again.iter().position(|(again, _)| again == value) {
            self.again[place].1 -= 1;
            if self.again[place].1 == 0 {
                self.again.swap_remove(place);
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
    let place = values.iter().position(|there| there == value);
    place.map(|place| values.remove(place)).is_some()
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
    fn a_record_is_there_until_it_was_taken_as_often_as_put() {
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
        for (n, (put, value, changes)) in steps.into_iter().enumerate() {
            let changed = if put { node.put(value) } else { node.take(&value) };
            assert_eq!(changed, changes, "step {n}: {node:?}");
        }
        assert!(node.is_gone());
    }

    #[test]
    fn most_names_need_no_memory_of_their_own() {
        assert!(size_of::<Node>() <= 48, "{}", size_of::<Node>());
    }
}
