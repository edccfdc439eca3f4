//! Zone transfers (RFC 5936, RFC 1995): the whole zone or the changes since the client's serial, in
//! as many messages as needed. Over UDP the answer is only the SOA record, so that the client
//! retries over TCP.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA, SRV};
use hickory_proto::rr::{RData, Record, RecordType};
use hickory_server::server::Request;
use ipnet::IpNet;

use super::answer::ZoneAuthority;
use super::wire;
use crate::Settings;
use crate::dns::respond::{Client, Transport};
use crate::labels::wire_name;
use crate::zone::{self, Node, Service, Value, Zone};

/// A message has room for this number of records even with the longest names.
const MAX_RECORDS_PER_MESSAGE: usize = 120;
/// The maximum of a TCP message.
const MAX_MESSAGE_BYTES: u16 = u16::MAX;

/// The networks that may transfer the zone.
#[derive(Clone, Debug)]
pub(super) struct Transfers(Vec<IpNet>);

/// A transfer: a series of messages from one zone.
#[derive(Debug)]
pub(super) struct Transfer {
    id: u16,
    question: Query,
    chunks: VecDeque<TransferChunk>,
    /// Records for the next messages.
    pending: VecDeque<Record>,
    first: bool,
    zone: Arc<Zone>,
    zone_authority: ZoneAuthority,
}

/// A part of a transfer.
#[derive(Debug)]
enum TransferChunk {
    Soa(u32),
    Ns,
    /// The remaining names of the zone.
    Names(std::vec::IntoIter<Arc<str>>),
    Removed(Arc<zone::Step>),
    Added(Arc<zone::Step>),
}

impl Transfers {
    pub(super) fn new(settings: &Settings) -> Self {
        Self(settings.allow_transfer.clone())
    }

    /// Starts a transfer; none if the client is not allowed or the query is for another zone.
    pub(super) fn begin(
        &self,
        zone: &Arc<Zone>,
        zone_authority: &ZoneAuthority,
        request: &Request,
        client: Client,
    ) -> Option<Transfer> {
        let [question] = request.queries.queries() else {
            return None;
        };
        let question = question.original();
        let allowed = self.0.iter().any(|net| net.contains(&client.ip.to_canonical()));
        if !allowed || question.name().to_lowercase() != *zone_authority.apex() {
            return None;
        }
        let kind = question.query_type();
        // AXFR does not exist over UDP.
        if kind == RecordType::AXFR && client.transport == Transport::Udp {
            return None;
        }
        let now = zone.serial();
        let full_transfer = || {
            let names: Vec<_> = zone.iter().map(|(name, _)| Arc::clone(name)).collect();
            let names = TransferChunk::Names(names.into_iter());
            VecDeque::from([
                TransferChunk::Soa(now),
                TransferChunk::Ns,
                names,
                TransferChunk::Soa(now),
            ])
        };
        let chunks = if kind == RecordType::AXFR {
            full_transfer()
        } else {
            let serial = request.authorities.iter().find_map(|record| match &record.data {
                RData::SOA(soa) => Some(soa.serial),
                _ => None,
            })?;
            match zone.journal().since(serial) {
                _ if serial == now || client.transport == Transport::Udp => {
                    VecDeque::from([TransferChunk::Soa(now)])
                }
                Some(steps) => {
                    let steps = steps.flat_map(|step| {
                        let (removed, added) = (Arc::clone(step), Arc::clone(step));
                        [
                            TransferChunk::Soa(step.from),
                            TransferChunk::Removed(removed),
                            TransferChunk::Soa(step.to),
                            TransferChunk::Added(added),
                        ]
                    });
                    [TransferChunk::Soa(now)]
                        .into_iter()
                        .chain(steps)
                        .chain([TransferChunk::Soa(now)])
                        .collect()
                }
                None => full_transfer(),
            }
        };
        Some(Transfer {
            id: request.metadata.id,
            question: question.clone(),
            chunks,
            pending: VecDeque::new(),
            first: true,
            zone: Arc::clone(zone),
            zone_authority: zone_authority.clone(),
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
        while self.pending.len() < MAX_RECORDS_PER_MESSAGE
            && let Some(chunk) = self.chunks.pop_front()
        {
            self.expand(chunk);
        }
        if self.pending.is_empty() {
            return None;
        }
        let mut message = Message::new(self.id, MessageType::Response, OpCode::Query);
        message.metadata.authoritative = true;
        if std::mem::take(&mut self.first) {
            message.queries = vec![self.question.clone()];
        }
        message.answers = self
            .pending
            .drain(..self.pending.len().min(MAX_RECORDS_PER_MESSAGE))
            .collect();
        wire::write(message, MAX_MESSAGE_BYTES)
            .inspect_err(|error| tracing::error!(%error, "encoding a zone transfer failed"))
            .ok()
    }

    fn expand(&mut self, chunk: TransferChunk) {
        match chunk {
            TransferChunk::Soa(serial) => self.pending.push_back(self.zone_authority.soa_of(serial)),
            TransferChunk::Ns => self.pending.push_back(self.zone_authority.ns()),
            TransferChunk::Names(mut names) => {
                for name in names.by_ref() {
                    let node = self.zone.node(&name);
                    self.pending
                        .extend(node.into_iter().flat_map(|node| of_node(&name, node)));
                    if self.pending.len() >= MAX_RECORDS_PER_MESSAGE {
                        break;
                    }
                }
                if names.len() > 0 {
                    self.chunks.push_front(TransferChunk::Names(names));
                }
            }
            TransferChunk::Removed(step) => self.pending.extend(
                step.removed
                    .iter()
                    .filter_map(|record| of_step(&self.zone, record)),
            ),
            TransferChunk::Added(step) => self
                .pending
                .extend(step.added.iter().filter_map(|record| of_step(&self.zone, record))),
        }
    }
}

/// A record of a change, if it is in the zone and DNS can represent it.
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

/// All records of a name that DNS can represent.
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
