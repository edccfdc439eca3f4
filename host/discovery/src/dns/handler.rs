//! Turns a query packet into its answer: checks, decisions before the zone is read, and size limits.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use super::acl::RecursionAcl;
use super::answer::{Answer, ZoneAuthority, answer};
use super::client::{Client, Transport};
use super::connection::{Reply, Respond};
use super::fast_path::{AnswerTemplate, Answered, Question};
use super::forward::{self, Forwarder, Started};
use super::limit::{self, Action, Class, Limiter};
use super::transfer::{Transfer, Transfers};
use super::wire::{self, Packet};
use crate::Config;
use crate::metrics::{self, Metrics};
use crate::shared::Shared;
use crate::zone::Zone;

/// The UDP payload without EDNS, and the maximum with it: larger packets are lost on some networks.
const UDP_SIZES: (u16, u16) = (512, 1232);

/// FORMERR for a packet that is shorter than a header, and so has no id.
const SHORT_FORMERR: [u8; 12] = [0, 0, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The TC flag in the third octet of a message.
const TRUNCATED: u8 = 2;

/// The outcome for a packet.
#[derive(Debug)]
pub(super) enum Outcome {
    Answer(Vec<u8>),
    Silence,
    /// Resolvers have to be queried.
    Forward(Box<Query>),
    /// The answer is a series of messages.
    Transfer(Box<Transfer>),
}

impl Outcome {
    fn of(answer: Option<Vec<u8>>) -> Self {
        answer.map_or(Self::Silence, Self::Answer)
    }
}

enum Decision {
    Answer(Answer),
    Forward(Box<Query>),
    Transfer(Box<Transfer>),
}

/// Answers packets from the newest zone.
#[derive(Debug)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
    zone_authority: ZoneAuthority,
    template: AnswerTemplate,
    transfers: Transfers,
    /// Forwarding of external names, if it is on, and the clients that it is for.
    forwarder: Option<Forwarder>,
    recursion_acl: RecursionAcl,
    /// Response rate limiting, if it is on.
    limiter: Option<Limiter>,
    metrics: Metrics,
    hot_counters: HotCounters,
}

/// Counters of common queries, looked up once.
#[derive(Debug)]
struct HotCounters([[Counter; 2]; 3]);

impl HotCounters {
    fn of(metrics: &Metrics) -> Self {
        Self(["A", "AAAA", "SRV"].map(|qtype| {
            ["NOERROR", "NXDOMAIN"].map(|rcode| {
                let query = metrics::QueryLabels { qtype, rcode };
                metrics.queries.get_or_create(&query).clone()
            })
        }))
    }

    fn count(&self, answered: Answered) {
        let kind = match answered.kind {
            1 => 0,
            28 => 1,
            _ => 2,
        };
        self.0[kind][usize::from(answered.code != 0)].inc();
    }
}

impl Handler {
    pub(crate) fn new(
        config: &Config,
        shared: Arc<Shared>,
        metrics: Metrics,
        forwarding: forward::Metrics,
    ) -> Self {
        let zone_authority = ZoneAuthority::new(config);
        Self {
            shared,
            template: zone_authority.template(config),
            zone_authority,
            transfers: Transfers::new(config),
            forwarder: config
                .external_on
                .then(|| Forwarder::new(&forward::Settings::from(config), forwarding)),
            recursion_acl: RecursionAcl::new(config.allow_recursion.iter().copied()),
            limiter: (config.responses_per_second > 0)
                .then(|| Limiter::new(limit::Settings::per_second(config.responses_per_second))),
            hot_counters: HotCounters::of(&metrics),
            metrics,
        }
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn template(&self) -> &AnswerTemplate {
        &self.template
    }

    /// The SOA and NS data of the zone.
    pub(super) fn zone_authority(&self) -> &ZoneAuthority {
        &self.zone_authority
    }

    /// Serials of zones published from now on.
    pub(super) fn serials(&self) -> watch::Receiver<u32> {
        self.shared.serial.subscribe()
    }

    /// The current zone; all packets of a batch are answered from the same one.
    pub(super) fn zone(&self) -> Option<Arc<Zone>> {
        self.shared.zone.load_full()
    }

    /// Answers a packet: appends the answer to `out`, or returns how to get it. No I/O, locks or waiting.
    pub(super) fn reply(
        &self,
        zone: Option<&Arc<Zone>>,
        packet: &[u8],
        client: Client,
        out: &mut Vec<u8>,
    ) -> Reply {
        if let Some(zone) = zone
            && !self.zone_authority.subnet_first
            && let Some(question) = Question::read(packet)
            && let Some(answered) = question.answer(zone, &self.template, client.over, out)
        {
            self.hot_counters.count(answered);
            return Reply::Written;
        }
        match self.answer_any(zone, packet, client) {
            Outcome::Answer(answer) => {
                out.extend_from_slice(&answer);
                Reply::Written
            }
            Outcome::Silence => Reply::Silence,
            Outcome::Forward(question) => self.forward(&question, packet, client, out),
            Outcome::Transfer(mut transfer) => Reply::Messages(Box::new(move || transfer.next())),
        }
    }

    /// Answers a packet of any kind, without the fast path.
    pub(super) fn answer_any(&self, zone: Option<&Arc<Zone>>, packet: &[u8], client: Client) -> Outcome {
        let mut request = match wire::read(packet) {
            Packet::Silence => return Outcome::Silence,
            Packet::Unreadable(metadata) => {
                self.count(&[], ResponseCode::FormErr);
                let mut response = response_with_code(&metadata, ResponseCode::FormErr);
                // Nothing of an unreadable query is repeated except its id.
                response.metadata.recursion_desired = false;
                return Outcome::of(encode(response, UDP_SIZES.0));
            }
            Packet::Request(request) => request,
        };
        let answer = match self.decide(zone, &request, client) {
            Decision::Answer(answer) => answer,
            Decision::Forward(question) => return Outcome::Forward(question),
            Decision::Transfer(transfer) => {
                self.count(&[transfer.kind()], ResponseCode::NoError);
                return Outcome::Transfer(transfer);
            }
        };
        let kinds: Vec<_> = request.queries.iter().map(Query::query_type).collect();
        self.count(&kinds, answer.code);

        let mut response = response_with_code(&request.metadata, answer.code);
        response.metadata.authoritative = answer.authoritative;
        response.metadata.recursion_available = answer.authoritative && self.template.recursion_available;
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
        let mut answer = encode(response, limit);
        if let (Some(bytes), false) = (&mut answer, self.template.set_truncate_bit) {
            bytes[2] &= !TRUNCATED;
        }
        Outcome::of(answer)
    }

    fn decide(&self, zone: Option<&Arc<Zone>>, request: &Message, client: Client) -> Decision {
        let refusal = |code| Decision::Answer(Answer::refusal(code));
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
            let Some(transfer) = self.transfers.begin(zone, &self.zone_authority, request, client) else {
                self.metrics.refused("transfer");
                return refusal(ResponseCode::Refused);
            };
            return Decision::Transfer(Box::new(transfer));
        }
        match answer(zone, &self.zone_authority, client.ip, name, kind) {
            Some(answer) => Decision::Answer(answer),
            None if self.forwarder.is_none() => {
                self.metrics.refused("outside");
                refusal(ResponseCode::Refused)
            }
            None if self.recursion_acl.allows(client.ip) => Decision::Forward(Box::new(question.clone())),
            None => {
                self.metrics.refused("recursion");
                refusal(ResponseCode::Refused)
            }
        }
    }

    fn forward(&self, question: &Query, packet: &[u8], client: Client, out: &mut Vec<u8>) -> Reply {
        let Some(forwarder) = &self.forwarder else {
            return Reply::Silence;
        };
        match forwarder.begin(
            packet,
            question.name(),
            question.query_type(),
            client.over,
            client.ip,
        ) {
            Started::Answered(answer) if answer.is_empty() => Reply::Silence,
            Started::Answered(answer) => {
                out.extend_from_slice(&answer);
                Reply::Written
            }
            Started::Waiting(answer) => Reply::Later(answer),
        }
    }

    /// Applies rate limiting to the UDP answer in `out` from `start` on: keeps it, truncates it to an empty
    /// answer, or removes it. Returns whether anything is left to send.
    pub(super) fn limited(&self, client: IpAddr, start: usize, out: &mut Vec<u8>) -> bool {
        let Some(limiter) = &self.limiter else { return true };
        let answer = &out[start..];
        match limiter.check(client, Class::of(answer)) {
            Action::Send => true,
            Action::Slip => {
                self.metrics.limited("slip");
                let emptied = limit::emptied(answer);
                out.truncate(start);
                out.extend(emptied.iter().flatten());
                emptied.is_some()
            }
            Action::Drop => {
                self.metrics.limited("drop");
                out.truncate(start);
                false
            }
        }
    }

    /// Stops forwarding.
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
            .get_or_create(&metrics::QueryLabels { qtype, rcode })
            .inc();
    }
}

impl Respond for Handler {
    fn respond(&self, packet: &[u8], client: SocketAddr, out: &mut Vec<u8>) -> Reply {
        // The source address of a connection is not forged, so the client expects an answer.
        if packet.len() < SHORT_FORMERR.len() {
            out.extend_from_slice(&SHORT_FORMERR);
            return Reply::Last;
        }
        let client = Client {
            ip: client.ip().to_canonical(),
            over: Transport::Tcp,
        };
        self.reply(self.zone().as_ref(), packet, client, out)
    }
}

/// EDNS for an answer to a query with EDNS. Its size is our own limit (RFC 6891, section 6.2.3).
fn edns_for(request: &Message) -> Option<Edns> {
    let asked = request.edns.as_ref()?;
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_SIZES.1);
    edns.set_version(0);
    edns.set_dnssec_ok(asked.flags().dnssec_ok);
    Some(edns)
}

/// A response with only a code.
fn response_with_code(request: &Metadata, code: ResponseCode) -> Message {
    let mut response = Message::new(request.id, MessageType::Response, request.op_code);
    response.metadata = Metadata::response_from_request(request);
    response.metadata.response_code = code;
    response.metadata.checking_disabled = false;
    response
}

/// The encoded response, or an encoded SERVFAIL if that fails.
fn encode(response: Message, limit: u16) -> Option<Vec<u8>> {
    let failure = response_with_code(&response.metadata, ResponseCode::ServFail);
    let bytes = wire::write(response, limit).or_else(|error| {
        tracing::error!(%error, "encoding a DNS answer failed");
        wire::write(failure, limit)
    });
    bytes.ok()
}

#[cfg(test)]
mod tests;
