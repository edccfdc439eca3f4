//! From a packet to the packet that answers it: what is refused before the zone is asked, and how large an answer may be.

use std::sync::Arc;

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::RecordType;
use prometheus_client::metrics::counter::Counter;

use super::answer::{Answer, Terms, answer};
use super::quick::{Prepared, Question, Room, Told};
use super::wire::{self, Packet};
use crate::Config;
use crate::metrics::{self, Metrics};
use crate::shared::Shared;
use crate::zone::Zone;

/// What an answer over UDP may have without EDNS, and at most with it: larger ones are lost on some paths.
const UDP_SIZES: (u16, u16) = (512, 1232);

/// In the third octet of a message.
const TRUNCATED: u8 = 2;

/// How a packet came, and its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// Answers packets from the newest zone.
#[derive(Debug)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
    terms: Terms,
    prepared: Prepared,
    recursion_available: bool,
    metrics: Metrics,
    common: Common,
}

/// Counters of the common questions, at hand.
#[derive(Debug)]
struct Common([[Counter; 2]; 3]);

impl Common {
    fn of(metrics: &Metrics) -> Self {
        Self(["A", "AAAA", "SRV"].map(|qtype| {
            ["NOERROR", "NXDOMAIN"].map(|rcode| {
                let query = metrics::Query { qtype, rcode };
                metrics.queries.get_or_create(&query).clone()
            })
        }))
    }

    fn count(&self, told: Told) {
        let kind = match told.kind {
            1 => 0,
            28 => 1,
            _ => 2,
        };
        self.0[kind][usize::from(told.code != 0)].inc();
    }
}

impl Handler {
    pub(crate) fn new(config: &Config, shared: Arc<Shared>, metrics: Metrics) -> Self {
        let terms = Terms::new(config);
        Self {
            shared,
            prepared: terms.prepared(config),
            terms,
            recursion_available: config.recurse_on,
            common: Common::of(&metrics),
            metrics,
        }
    }

    #[cfg(test)]
    pub(super) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// The zone that is served now: of one batch of packets, all are answered from the same.
    pub(super) fn zone(&self) -> Option<Arc<Zone>> {
        self.shared.zone.load_full()
    }

    /// Writes the answer to a packet to the end of `out`. Whether there is one: none to what is no request. No I/O, no
    /// lock, no waiting.
    pub(super) fn reply(
        &self,
        zone: Option<&Zone>,
        packet: &[u8],
        over: Transport,
        out: &mut Vec<u8>,
    ) -> bool {
        if let Some(zone) = zone
            && let Some(question) = Question::read(packet)
        {
            let room = match over {
                Transport::Udp => Room::Datagram,
                Transport::Tcp => Room::Stream,
            };
            if let Some(told) = question.answer(zone, &self.prepared, room, out) {
                self.common.count(told);
                return true;
            }
        }
        match self.considered(zone, packet, over) {
            Some(answer) => {
                out.extend_from_slice(&answer);
                true
            }
            None => false,
        }
    }

    /// The answer to a packet of any kind; none to what is no request.
    pub(super) fn considered(&self, zone: Option<&Zone>, packet: &[u8], over: Transport) -> Option<Vec<u8>> {
        let mut request = match wire::read(packet) {
            Packet::Silence => return None,
            Packet::Unreadable(metadata) => {
                self.count(&[], ResponseCode::FormErr);
                return written(coded(&metadata, ResponseCode::FormErr), UDP_SIZES.0);
            }
            Packet::Request(request) => request,
        };
        let answer = self.decide(zone, &request);
        let kinds: Vec<_> = request.queries.iter().map(Query::query_type).collect();
        self.count(&kinds, answer.code);

        let mut response = coded(&request.metadata, answer.code);
        response.metadata.authoritative = answer.authoritative;
        response.metadata.recursion_available = answer.authoritative && self.recursion_available;
        response.edns = edns_for(&request);
        if kinds.len() == 1 {
            response.queries = std::mem::take(&mut request.queries);
        }
        response.answers = answer.answers;
        response.authorities = answer.authority;
        response.additionals = answer.additional;
        let limit = match over {
            Transport::Udp => response.edns.as_ref().map_or(UDP_SIZES.0, Edns::max_payload),
            Transport::Tcp => u16::MAX,
        };
        let mut bytes = written(response, limit)?;
        if !self.prepared.set_truncate_bit {
            bytes[2] &= !TRUNCATED;
        }
        Some(bytes)
    }

    fn decide(&self, zone: Option<&Zone>, request: &Message) -> Answer {
        match request.metadata.op_code {
            OpCode::Query => {}
            OpCode::Notify | OpCode::Update => return Answer::refusal(ResponseCode::Refused),
            OpCode::Status | OpCode::Unknown(_) => return Answer::refusal(ResponseCode::NotImp),
        }
        if request.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
            return Answer::refusal(ResponseCode::BADVERS);
        }
        let [question] = &request.queries[..] else {
            return Answer::refusal(ResponseCode::FormErr);
        };
        let Some(zone) = zone else {
            return Answer::refusal(ResponseCode::ServFail);
        };
        answer(
            zone,
            &self.terms,
            question.name(),
            question.query_class(),
            question.query_type(),
        )
    }

    fn count(&self, kinds: &[RecordType], code: ResponseCode) {
        let qtype = match kinds {
            [RecordType::A] => "A",
            [RecordType::AAAA] => "AAAA",
            [RecordType::SRV] => "SRV",
            [RecordType::SOA] => "SOA",
            [RecordType::NS] => "NS",
            [RecordType::PTR] => "PTR",
            [RecordType::ANY] => "ANY",
            _ => "other",
        };
        let rcode = match code {
            ResponseCode::NoError => "NOERROR",
            ResponseCode::NXDomain => "NXDOMAIN",
            ResponseCode::Refused => "REFUSED",
            ResponseCode::ServFail => "SERVFAIL",
            ResponseCode::FormErr => "FORMERR",
            ResponseCode::NotImp => "NOTIMP",
            _ => "other",
        };
        self.metrics
            .queries
            .get_or_create(&metrics::Query { qtype, rcode })
            .inc();
    }
}

/// EDNS for an answer to one who speaks it. Its size is the answer's limit over UDP.
fn edns_for(request: &Message) -> Option<Edns> {
    let asked = request.edns.as_ref()?;
    let mut edns = Edns::new();
    edns.set_max_payload(asked.max_payload().clamp(UDP_SIZES.0, UDP_SIZES.1));
    edns.set_version(0);
    edns.set_dnssec_ok(asked.flags().dnssec_ok);
    Some(edns)
}

/// A response with a code and nothing else.
fn coded(request: &Metadata, code: ResponseCode) -> Message {
    let mut response = Message::new(request.id, MessageType::Response, request.op_code);
    response.metadata = Metadata::response_from_request(request);
    response.metadata.response_code = code;
    response.metadata.checking_disabled = false;
    response
}

/// The response's bytes; those of a failure when it cannot be written.
fn written(response: Message, limit: u16) -> Option<Vec<u8>> {
    let failure = coded(&response.metadata, ResponseCode::ServFail);
    let bytes = wire::write(response, limit).or_else(|error| {
        tracing::error!(%error, "an answer could not be written");
        wire::write(failure, limit)
    });
    bytes.ok()
}
