//! Zone transfers (RFC 5936, RFC 1995): all of the zone, or what changed since the client's serial, in as many messages as it
//! takes. Over UDP there is no room: the client is told the serial, and comes back over TCP if that is news.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA, SRV};
use hickory_proto::rr::{RData, Record, RecordType};
use ipnet::IpNet;

use super::answer::Terms;
use super::client::{Client, Transport};
use super::wire;
use crate::Config;
use crate::labels::wire_name;
use crate::zone::{self, Node, Service, Value, Zone};

/// Records of one message: with the longest names there are it still fits.
const RECORDS: usize = 120;
/// The most a message may be.
const LARGEST: u16 = u16::MAX;

/// Who may have the zone.
#[derive(Clone, Debug)]
pub(super) struct Transfers(Vec<IpNet>);

/// A transfer: its messages one after the other, all of one zone.
#[derive(Debug)]
pub(super) struct Transfer {
    id: u16,
    question: Query,
    parts: VecDeque<Part>,
    /// Records that are due.
    due: VecDeque<Record>,
    first: bool,
    zone: Arc<Zone>,
    terms: Terms,
}

/// Some of the records.
#[derive(Debug)]
enum Part {
    Soa(u32),
    Ns,
    /// All of the zone's names that are left.
    Names(std::vec::IntoIter<Arc<str>>),
    Removed(Arc<zone::Step>),
    Added(Arc<zone::Step>),
}

impl Transfers {
    pub(super) fn new(config: &Config) -> Self {
        Self(config.allow_transfer.clone())
    }

    /// The transfer that is asked for; none where the client may not have it, or it is of another zone.
    pub(super) fn begin(
        &self,
        zone: &Arc<Zone>,
        terms: &Terms,
        request: &Message,
        client: Client,
    ) -> Option<Transfer> {
        let [question] = &request.queries[..] else {
            return None;
        };
        let allowed = self.0.iter().any(|net| net.contains(&client.ip.to_canonical()));
        if !allowed || question.name().to_lowercase() != *terms.apex() {
            return None;
        }
        let kind = question.query_type();
        // AXFR is never asked over UDP.
        if kind == RecordType::AXFR && client.over == Transport::Udp {
            return None;
        }
        let now = zone.serial();
        let whole = || {
            let names: Vec<_> = zone.iter().map(|(name, _)| Arc::clone(name)).collect();
            let names = Part::Names(names.into_iter());
            VecDeque::from([Part::Soa(now), Part::Ns, names, Part::Soa(now)])
        };
        let parts = if kind == RecordType::AXFR {
            whole()
        } else {
            let serial = request.authorities.iter().find_map(|record| match &record.data {
                RData::SOA(soa) => Some(soa.serial),
                _ => None,
            })?;
            match zone.journal().since(serial) {
                _ if serial == now || client.over == Transport::Udp => VecDeque::from([Part::Soa(now)]),
                Some(steps) => {
                    let steps = steps.flat_map(|step| {
                        let (removed, added) = (Arc::clone(step), Arc::clone(step));
                        [
                            Part::Soa(step.from),
                            Part::Removed(removed),
                            Part::Soa(step.to),
                            Part::Added(added),
                        ]
                    });
                    [Part::Soa(now)]
                        .into_iter()
                        .chain(steps)
                        .chain([Part::Soa(now)])
                        .collect()
                }
                None => whole(),
            }
        };
        Some(Transfer {
            id: request.metadata.id,
            question: question.clone(),
            parts,
            due: VecDeque::new(),
            first: true,
            zone: Arc::clone(zone),
            terms: terms.clone(),
        })
    }
}

impl Transfer {
    /// `AXFR` or `IXFR`.
    pub(super) fn kind(&self) -> RecordType {
        self.question.query_type()
    }

    /// The next message; none after the last.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        while self.due.len() < RECORDS
            && let Some(part) = self.parts.pop_front()
        {
            self.fall_due(part);
        }
        if self.due.is_empty() {
            return None;
        }
        let mut message = Message::new(self.id, MessageType::Response, OpCode::Query);
        message.metadata.authoritative = true;
        if std::mem::take(&mut self.first) {
            message.queries = vec![self.question.clone()];
        }
        message.answers = self.due.drain(..self.due.len().min(RECORDS)).collect();
        wire::write(message, LARGEST)
            .inspect_err(|error| tracing::error!(%error, "a zone transfer could not be written"))
            .ok()
    }

    fn fall_due(&mut self, part: Part) {
        match part {
            Part::Soa(serial) => self.due.push_back(self.terms.soa_of(serial)),
            Part::Ns => self.due.push_back(self.terms.ns()),
            Part::Names(mut names) => {
                for name in names.by_ref() {
                    let node = self.zone.node(&name);
                    self.due
                        .extend(node.into_iter().flat_map(|node| of_node(&name, node)));
                    if self.due.len() >= RECORDS {
                        break;
                    }
                }
                if names.len() > 0 {
                    self.parts.push_front(Part::Names(names));
                }
            }
            Part::Removed(step) => self.due.extend(
                step.removed
                    .iter()
                    .filter_map(|record| of_step(&self.zone, record)),
            ),
            Part::Added(step) => self
                .due
                .extend(step.added.iter().filter_map(|record| of_step(&self.zone, record))),
        }
    }
}

/// A record of a change, where it is the zone's and DNS can carry it.
fn of_step(zone: &Zone, record: &zone::Record) -> Option<Record> {
    if !zone.holds(&record.name) {
        return None;
    }
    let name = wire_name(&record.name)?;
    let data = match &record.value {
        Value::Address(ip) => address(*ip),
        Value::Service(service) => of_service(service)?,
    };
    Some(Record::from_rdata(name, record.ttl, data))
}

fn address(ip: IpAddr) -> RData {
    match ip {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    }
}

fn of_service(service: &Service) -> Option<RData> {
    let port = u16::try_from(service.port).ok()?;
    Some(RData::SRV(SRV::new(
        0,
        service.weight,
        port,
        wire_name(&service.target)?,
    )))
}

/// All records of a name that DNS can carry.
fn of_node(name: &str, node: &Node) -> Vec<Record> {
    let Some(name) = wire_name(name) else {
        return Vec::new();
    };
    let a = node.a().iter().map(|ip| address((*ip).into()));
    let aaaa = node.aaaa().iter().map(|ip| address((*ip).into()));
    let srv = node.srv().iter().filter_map(of_service);
    a.chain(aaaa)
        .chain(srv)
        .map(|data| Record::from_rdata(name.clone(), node.ttl(), data))
        .collect()
}

#[cfg(test)]
mod tests;
