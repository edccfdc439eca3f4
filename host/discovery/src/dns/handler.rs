//! From a packet to the packet that answers it: what is refused before the zone is asked, and how large an answer may be.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use super::access::Recursion;
use super::answer::{Answer, Terms, answer};
use super::client::{Client, Transport};
use super::connection::{Reply, Respond};
use super::forward::{self, Begun, Forwarder};
use super::limit::{self, Class, Limiter, Verdict};
use super::quick::{Prepared, Question, Room, Told};
use super::transfer::{Transfer, Transfers};
use super::wire::{self, Packet};
use crate::Config;
use crate::metrics::{self, Metrics};
use crate::shared::Shared;
use crate::zone::Zone;

/// What an answer over UDP may have without EDNS, and at most with it: larger ones are lost on some paths.
const UDP_SIZES: (u16, u16) = (512, 1232);

/// FORMERR for what is shorter than a header and has no id of its own.
const NAMELESS: [u8; 12] = [0, 0, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0];

/// In the third octet of a message.
const TRUNCATED: u8 = 2;

/// What becomes of a packet, with the answer at hand if there is one.
#[derive(Debug)]
pub(super) enum Considered {
    Answer(Vec<u8>),
    Silence,
    /// Others have to be asked.
    Elsewhere(Box<Query>),
    /// The answer is many messages.
    Transfer(Box<Transfer>),
}

impl Considered {
    fn of(answer: Option<Vec<u8>>) -> Self {
        answer.map_or(Self::Silence, Self::Answer)
    }
}

enum Decided {
    Answer(Answer),
    Elsewhere(Box<Query>),
    Transfer(Box<Transfer>),
}

/// Answers packets from the newest zone.
#[derive(Debug)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
    terms: Terms,
    prepared: Prepared,
    transfers: Transfers,
    /// Where names outside the zone are looked up, if they are, and for whom.
    forwarder: Option<Forwarder>,
    recursion: Recursion,
    /// How much a network may be answered over UDP.
    limiter: Option<Limiter>,
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
    pub(crate) fn new(
        config: &Config,
        shared: Arc<Shared>,
        metrics: Metrics,
        forwarding: forward::Metrics,
    ) -> Self {
        let terms = Terms::new(config);
        Self {
            shared,
            prepared: terms.prepared(config),
            terms,
            transfers: Transfers::new(config),
            forwarder: config
                .external_on
                .then(|| Forwarder::new(&forward::Settings::from(config), forwarding)),
            recursion: Recursion::new(config.allow_recursion.iter().copied()),
            limiter: (config.responses_per_second > 0)
                .then(|| Limiter::new(limit::Settings::per_second(config.responses_per_second))),
            common: Common::of(&metrics),
            metrics,
        }
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// What answers have in common.
    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The serials of the zones that are served from now on.
    pub(super) fn serials(&self) -> watch::Receiver<u32> {
        self.shared.serial.subscribe()
    }

    /// The zone that is served now: of one batch of packets, all are answered from the same.
    pub(super) fn zone(&self) -> Option<Arc<Zone>> {
        self.shared.zone.load_full()
    }

    /// Answers a packet: writes the answer to the end of `out`, or says what it takes. No I/O, no lock, no waiting.
    pub(super) fn reply(
        &self,
        zone: Option<&Arc<Zone>>,
        packet: &[u8],
        client: Client,
        out: &mut Vec<u8>,
    ) -> Reply {
        if let Some(zone) = zone
            && !self.terms.subnet_first
            && let Some(question) = Question::read(packet)
        {
            let room = match client.over {
                Transport::Udp => Room::Datagram,
                Transport::Tcp => Room::Stream,
            };
            if let Some(told) = question.answer(zone, &self.prepared, room, out) {
                self.common.count(told);
                return Reply::Written;
            }
        }
        match self.considered(zone, packet, client) {
            Considered::Answer(answer) => {
                out.extend_from_slice(&answer);
                Reply::Written
            }
            Considered::Silence => Reply::Silence,
            Considered::Elsewhere(question) => self.forwarded(&question, packet, client, out),
            Considered::Transfer(mut transfer) => Reply::Messages(Box::new(move || transfer.next())),
        }
    }

    /// The same for a packet of any kind.
    pub(super) fn considered(&self, zone: Option<&Arc<Zone>>, packet: &[u8], client: Client) -> Considered {
        let mut request = match wire::read(packet) {
            Packet::Silence => return Considered::Silence,
            Packet::Unreadable(metadata) => {
                self.count(&[], ResponseCode::FormErr);
                let mut response = coded(&metadata, ResponseCode::FormErr);
                // Nothing of what cannot be read is repeated, but which message it was.
                response.metadata.recursion_desired = false;
                return Considered::of(written(response, UDP_SIZES.0));
            }
            Packet::Request(request) => request,
        };
        let answer = match self.decide(zone, &request, client) {
            Decided::Answer(answer) => answer,
            Decided::Elsewhere(question) => return Considered::Elsewhere(question),
            Decided::Transfer(transfer) => {
                self.count(&[transfer.kind()], ResponseCode::NoError);
                return Considered::Transfer(transfer);
            }
        };
        let kinds: Vec<_> = request.queries.iter().map(Query::query_type).collect();
        self.count(&kinds, answer.code);

        let mut response = coded(&request.metadata, answer.code);
        response.metadata.authoritative = answer.authoritative;
        response.metadata.recursion_available = answer.authoritative && self.prepared.recursion_available;
        response.edns = edns_for(&request);
        if kinds.len() == 1 {
            response.queries = std::mem::take(&mut request.queries);
        }
        response.answers = answer.answers;
        response.authorities = answer.authority;
        response.additionals = answer.additional;
        let limit = match client.over {
            Transport::Udp => request.edns.as_ref().map_or(UDP_SIZES.0, |edns| {
                edns.max_payload().clamp(UDP_SIZES.0, UDP_SIZES.1)
            }),
            Transport::Tcp => u16::MAX,
        };
        let mut answer = written(response, limit);
        if let (Some(bytes), false) = (&mut answer, self.prepared.set_truncate_bit) {
            bytes[2] &= !TRUNCATED;
        }
        Considered::of(answer)
    }

    fn decide(&self, zone: Option<&Arc<Zone>>, request: &Message, client: Client) -> Decided {
        let refusal = |code| Decided::Answer(Answer::refusal(code));
        match request.metadata.op_code {
            OpCode::Query => {}
            OpCode::Notify | OpCode::Update => return refusal(ResponseCode::Refused),
            OpCode::Status | OpCode::Unknown(_) => return refusal(ResponseCode::NotImp),
        }
        if request.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
            return refusal(ResponseCode::BADVERS);
        }
        let [question] = &request.queries[..] else {
            return refusal(ResponseCode::FormErr);
        };
        let (name, kind) = (question.name(), question.query_type());
        if question.query_class() != DNSClass::IN {
            return refusal(ResponseCode::Refused);
        }
        let Some(zone) = zone else {
            return refusal(ResponseCode::ServFail);
        };
        if matches!(kind, RecordType::AXFR | RecordType::IXFR) {
            let Some(transfer) = self.transfers.begin(zone, &self.terms, request, client) else {
                self.metrics.refused("transfer");
                return refusal(ResponseCode::Refused);
            };
            return Decided::Transfer(Box::new(transfer));
        }
        match answer(zone, &self.terms, client.ip, name, kind) {
            Some(answer) => Decided::Answer(answer),
            None if self.forwarder.is_none() => {
                self.metrics.refused("outside");
                refusal(ResponseCode::Refused)
            }
            None if self.recursion.allows(client.ip) => Decided::Elsewhere(Box::new(question.clone())),
            None => {
                self.metrics.refused("recursion");
                refusal(ResponseCode::Refused)
            }
        }
    }

    fn forwarded(&self, question: &Query, packet: &[u8], client: Client, out: &mut Vec<u8>) -> Reply {
        let Some(forwarder) = &self.forwarder else {
            return Reply::Silence;
        };
        let over = match client.over {
            Transport::Udp => forward::Transport::Udp,
            Transport::Tcp => forward::Transport::Tcp,
        };
        match forwarder.begin(packet, question.name(), question.query_type(), over, client.ip) {
            Begun::Answered(answer) if answer.is_empty() => Reply::Silence,
            Begun::Answered(answer) => {
                out.extend_from_slice(&answer);
                Reply::Written
            }
            Begun::Waiting(answer) => Reply::Later(answer),
        }
    }

    /// What may be sent of an answer over UDP, at the end of `out` from `start` on: all of it, the mark that it was cut, or
    /// nothing. Whether anything is left.
    pub(super) fn limited(&self, client: IpAddr, start: usize, out: &mut Vec<u8>) -> bool {
        let Some(limiter) = &self.limiter else { return true };
        let answer = &out[start..];
        match limiter.check(client, Class::of(answer)) {
            Verdict::Send => true,
            Verdict::Slip => {
                self.metrics.limited("slip");
                let emptied = limit::emptied(answer);
                out.truncate(start);
                out.extend(emptied.iter().flatten());
                emptied.is_some()
            }
            Verdict::Drop => {
                self.metrics.limited("drop");
                out.truncate(start);
                false
            }
        }
    }

    /// Ends what it has others do.
    pub(super) async fn stop(&self) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.stop().await;
        }
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
            [RecordType::AXFR] => "AXFR",
            [RecordType::IXFR] => "IXFR",
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

impl Respond for Handler {
    fn respond(&self, packet: &[u8], client: SocketAddr, out: &mut Vec<u8>) -> Reply {
        // Nobody else can have sent it on a connection, so there is somebody who waits.
        if packet.len() < NAMELESS.len() {
            out.extend_from_slice(&NAMELESS);
            return Reply::Last;
        }
        let client = Client {
            ip: client.ip().to_canonical(),
            over: Transport::Tcp,
        };
        self.reply(self.zone().as_ref(), packet, client, out)
    }
}

/// EDNS for an answer to one who speaks it. Its size is what we take, whatever he does (RFC 6891, section 6.2.3).
fn edns_for(request: &Message) -> Option<Edns> {
    let asked = request.edns.as_ref()?;
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_SIZES.1);
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

#[cfg(test)]
mod tests;
