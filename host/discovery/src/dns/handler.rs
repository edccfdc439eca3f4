//! Turns a query packet into its answer.
//!
//! [`fast_path`] answers the common queries. Other packets are parsed into requests ([`wire`]), of
//! which [`Handler`] forwards some ([`forward`]) and answers some with a [`transfer`].
//! All others go to [`zone_handler`], a handler of hickory-server, which answers from the zone
//! ([`answer`]) or rejects; [`response_buffer`] encodes its responses.

mod answer;
mod fast_path;
mod response_buffer;
mod transfer;
mod wire;
mod zone_handler;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use futures::FutureExt;
use hickory_proto::op::{LowerQuery, Message, Metadata, Query, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_server::net::runtime::TokioTime;
use hickory_server::server::{Request, RequestHandler};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use super::acl::RecursionAcl;
use super::forward::{self, Forwarder, Started};
use super::limit::{self, Action, Class, Limiter};
use super::respond::{Client, Reply, Respond, Transport};
use crate::Settings;
use crate::metrics::{self, Metrics};
use crate::shared::Shared;
use crate::zone::Zone;
pub(super) use answer::ZoneAuthority;
use answer::is_answered;
use fast_path::{AnswerTemplate, Answered, Question};
use response_buffer::ResponseBuffer;
use transfer::{Transfer, Transfers};
use wire::Packet;
use zone_handler::ZoneHandler;

/// FORMERR for a packet that is shorter than a header, and so has no id.
const SHORT_FORMERR: [u8; 12] = [0, 0, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The duration of one in this number of queries is measured, because reading the clock twice is a
/// noticeable part of the cost of an answer.
const QUERIES_PER_SAMPLE: u32 = 16;

/// How a request is answered.
enum Route {
    /// By hickory-server's handler.
    Zone,
    /// By resolvers.
    Forward(Box<Query>),
    /// With a series of messages.
    Transfer(Box<Transfer>),
}

/// Answers packets from the newest zone.
#[derive(Debug)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
    zone_authority: Arc<ZoneAuthority>,
    template: AnswerTemplate,
    transfers: Transfers,
    /// Forwarding of external names, if it is on, for the clients that `recursion_acl` allows.
    forwarder: Option<Forwarder>,
    recursion_acl: RecursionAcl,
    /// Response rate limiting, if it is on.
    limiter: Option<Limiter>,
    metrics: Metrics,
    hot_counters: HotCounters,
    /// The number of queries so far, which selects those to measure.
    query_counter: AtomicU32,
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
        settings: &Settings,
        shared: Arc<Shared>,
        metrics: Metrics,
        forwarding: forward::Metrics,
    ) -> Self {
        let zone_authority = Arc::new(ZoneAuthority::new(settings));
        Self {
            shared,
            template: zone_authority.template(settings),
            zone_authority,
            transfers: Transfers::new(settings),
            forwarder: settings
                .external_on
                .then(|| Forwarder::new(&forward::Settings::from(settings), forwarding)),
            recursion_acl: RecursionAcl::new(settings.allow_recursion.iter().copied()),
            limiter: (settings.responses_per_second > 0)
                .then(|| Limiter::new(limit::Settings::per_second(settings.responses_per_second))),
            hot_counters: HotCounters::of(&metrics),
            query_counter: AtomicU32::new(0),
            metrics,
        }
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

    /// Answers a packet: appends the answer to `out`, or returns how to get it. No I/O, locks or
    /// waiting.
    pub(super) fn reply(
        &self,
        zone: Option<&Arc<Zone>>,
        packet: &[u8],
        client: Client,
        out: &mut Vec<u8>,
    ) -> Reply {
        let sample = self
            .query_counter
            .fetch_add(1, Relaxed)
            .is_multiple_of(QUERIES_PER_SAMPLE);
        let began = sample.then(Instant::now);
        let reply = match zone {
            Some(zone) if self.reply_by_fast_path(zone, packet, client, out) => Reply::Written,
            _ => self.reply_without_fast_path(zone, packet, client, out),
        };
        if let (Some(began), Reply::Written) = (began, &reply) {
            self.metrics.answer_seconds.observe(began.elapsed().as_secs_f64());
        }
        reply
    }

    /// Answers a common query. Returns whether it did; otherwise nothing is written.
    pub(super) fn reply_by_fast_path(
        &self,
        zone: &Zone,
        packet: &[u8],
        client: Client,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.zone_authority.subnet_first
            && let Some(question) = Question::read(packet)
            && let Some(answered) = question.answer(zone, &self.template, client.transport, out)
        {
            self.hot_counters.count(answered);
            return true;
        }
        false
    }

    /// Answers a packet of any kind, see [`Self::reply`].
    pub(super) fn reply_without_fast_path(
        &self,
        zone: Option<&Arc<Zone>>,
        packet: &[u8],
        client: Client,
        out: &mut Vec<u8>,
    ) -> Reply {
        let request = match wire::read(packet, client) {
            Packet::Silence => return Reply::Silence,
            Packet::Unreadable(metadata) => {
                self.count(&[], ResponseCode::FormErr);
                return write(out, &form_error(&metadata));
            }
            Packet::Request(request) => request,
        };
        match self.route(zone, &request, client) {
            Route::Zone => self.answer_from_zone(zone, &request, out),
            Route::Forward(question) => self.forward(&question, packet, client, out),
            Route::Transfer(mut transfer) => {
                self.count(&[transfer.kind()], ResponseCode::NoError);
                Reply::Messages(Box::new(move || transfer.next()))
            }
        }
    }

    fn route(&self, zone: Option<&Arc<Zone>>, request: &Request, client: Client) -> Route {
        let (Ok(question), Some(zone)) = (zone_handler::question(request), zone) else {
            return Route::Zone;
        };
        if matches!(question.query_type(), RecordType::AXFR | RecordType::IXFR) {
            let transfer = self.transfers.begin(zone, &self.zone_authority, request, client);
            return transfer.map_or_else(
                || self.rejected("transfer"),
                |transfer| Route::Transfer(Box::new(transfer)),
            );
        }
        if is_answered(zone, &self.zone_authority, question.name()) {
            Route::Zone
        } else if self.forwarder.is_none() {
            self.rejected("outside")
        } else if self.recursion_acl.allows(client.ip) {
            Route::Forward(Box::new(question.clone()))
        } else {
            self.rejected("recursion")
        }
    }

    /// Counts a rejection; [`ZoneHandler`] sends it.
    fn rejected(&self, reason: &'static str) -> Route {
        self.metrics.rejected(reason);
        Route::Zone
    }

    fn answer_from_zone(&self, zone: Option<&Arc<Zone>>, request: &Request, out: &mut Vec<u8>) -> Reply {
        let handler = ZoneHandler {
            zone: zone.cloned(),
            zone_authority: Arc::clone(&self.zone_authority),
        };
        let response = ResponseBuffer::of(request);
        let handling = handler.handle_request::<_, TokioTime>(request, response.clone());
        // The handler never waits, so its future is ready at the first poll.
        let Some(info) = handling.now_or_never() else {
            return Reply::Silence;
        };
        let questions = request.queries.queries();
        let kinds: Vec<_> = questions.iter().map(LowerQuery::query_type).collect();
        self.count(&kinds, info.response_code);
        write(out, &response.take())
    }

    fn forward(&self, question: &Query, packet: &[u8], client: Client, out: &mut Vec<u8>) -> Reply {
        let Some(forwarder) = &self.forwarder else {
            return Reply::Silence;
        };
        match forwarder.begin(
            packet,
            question.name(),
            question.query_type(),
            client.transport,
            client.ip,
        ) {
            Started::Answered(answer) => write(out, &answer),
            Started::Waiting(answer) => Reply::Later(answer),
        }
    }

    /// Applies rate limiting to the UDP answer in `out` from `start` on: keeps it, truncates it to
    /// an empty answer, or removes it. Returns whether anything is left to send.
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
    fn respond(&self, packet: &[u8], client: Client, out: &mut Vec<u8>) -> Reply {
        // The source address of a connection is not forged, so the client expects an answer.
        if client.transport == Transport::Tcp && packet.len() < SHORT_FORMERR.len() {
            out.extend_from_slice(&SHORT_FORMERR);
            return Reply::Last;
        }
        self.reply(self.zone().as_ref(), packet, client, out)
    }

    fn is_within_rate(&self, client: Client, answer: &[u8]) -> bool {
        let Some(limiter) = &self.limiter else { return true };
        let is_within = limiter.check(client.ip, Class::of(answer)) == Action::Send;
        if !is_within {
            self.metrics.limited("reject");
        }
        is_within
    }
}

/// Appends an answer, if there is one.
fn write(out: &mut Vec<u8>, answer: &[u8]) -> Reply {
    if answer.is_empty() {
        return Reply::Silence;
    }
    out.extend_from_slice(answer);
    Reply::Written
}

/// FORMERR for an unreadable query, of which nothing is repeated except the id and the opcode.
fn form_error(request: &Metadata) -> Vec<u8> {
    let mut metadata = zone_handler::response_metadata(request, ResponseCode::FormErr);
    metadata.recursion_desired = false;
    let mut response = Message::new(metadata.id, metadata.message_type, metadata.op_code);
    response.metadata = metadata;
    response.to_vec().unwrap_or_default()
}

#[cfg(test)]
mod tests;
