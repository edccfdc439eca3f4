//! Requests as the server library hands them over: what is refused before the zone is asked, and how large an answer may be.

use std::sync::Arc;

use async_trait::async_trait;
use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, Header, HeaderCounts, LowerQuery, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};
use hickory_server::net::runtime::Time;
use hickory_server::net::xfer::Protocol;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;

use super::answer::{Answer, Terms, answer};
use crate::Config;
use crate::metrics::{self, Metrics};
use crate::shared::Shared;

/// What an answer over UDP may have without EDNS, and at most with it: larger ones are lost on some paths.
const UDP_SIZES: (u16, u16) = (512, 1232);

/// Answers requests from the newest zone.
#[derive(Debug)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
    terms: Terms,
    recursion_available: bool,
    metrics: Metrics,
}

impl Handler {
    pub(crate) fn new(config: &Config, shared: Arc<Shared>, metrics: Metrics) -> Self {
        Self {
            shared,
            terms: Terms::new(config),
            recursion_available: config.recurse_on,
            metrics,
        }
    }

    /// Decides; no I/O, no lock, no waiting.
    fn decide(&self, request: &Request) -> Answer {
        match request.metadata.op_code {
            OpCode::Query => {}
            OpCode::Notify | OpCode::Update => return Answer::refusal(ResponseCode::Refused),
            OpCode::Status | OpCode::Unknown(_) => return Answer::refusal(ResponseCode::NotImp),
        }
        if request.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
            return Answer::refusal(ResponseCode::BADVERS);
        }
        let [question] = request.queries.queries() else {
            return Answer::refusal(ResponseCode::FormErr);
        };
        let zone = self.shared.zone.load();
        let Some(zone) = zone.as_deref() else {
            return Answer::refusal(ResponseCode::ServFail);
        };
        let asked = question.original();
        answer(
            zone,
            &self.terms,
            asked.name(),
            asked.query_class(),
            asked.query_type(),
        )
    }

    fn count(&self, request: &Request, code: ResponseCode) {
        let kinds: Vec<_> = request
            .queries
            .queries()
            .iter()
            .map(LowerQuery::query_type)
            .collect();
        let qtype = match kinds[..] {
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

/// EDNS for an answer to one who speaks it. The library measures the answer against what is said here.
fn edns_for(request: &Request) -> Option<Edns> {
    let asked = request.edns.as_ref()?;
    let mut edns = Edns::new();
    edns.set_max_payload(asked.max_payload().clamp(UDP_SIZES.0, UDP_SIZES.1));
    edns.set_version(0);
    edns.set_dnssec_ok(asked.flags().dnssec_ok);
    Some(edns)
}

/// Takes additional records away until the answer fits without being marked as cut: nobody needs to ask again over TCP
/// for what is only a courtesy (RFC 2181, section 9).
fn fit(answer: &mut Answer, question: &[u8], limit: usize) {
    /// More than any of these records takes on the wire: two names and some numbers.
    const LARGEST: usize = 2 * 255 + 32;
    let records = answer.answers.len() + answer.authority.len() + answer.additional.len();
    if answer.additional.is_empty() || LARGEST * (records + 1) <= limit {
        return;
    }
    let fitting = measure(answer, question, limit).unwrap_or_default();
    answer.additional.truncate(fitting);
}

/// How many additional records fit: they are written one after the other, names compressed as they will be.
fn measure(answer: &Answer, question: &[u8], limit: usize) -> Result<usize, ProtoError> {
    const HEAD: [u8; 12] = [0; 12];
    const OPT: usize = 11;
    let mut message = Vec::with_capacity(limit);
    let mut encoder = BinEncoder::new(&mut message);
    encoder.emit_vec(&HEAD)?;
    // The library sends the question back as it came; names are not compressed against it.
    encoder.emit_vec(question)?;
    for record in answer.answers.iter().chain(&answer.authority) {
        record.emit(&mut encoder)?;
    }
    for (fitting, record) in answer.additional.iter().enumerate() {
        record.emit(&mut encoder)?;
        if encoder.offset() + OPT > limit {
            return Ok(fitting);
        }
    }
    Ok(answer.additional.len())
}

#[async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut respond: R,
    ) -> ResponseInfo {
        let mut answer = self.decide(request);
        self.count(request, answer.code);
        let edns = edns_for(request);
        if request.protocol() == Protocol::Udp {
            let limit = edns.as_ref().map_or(UDP_SIZES.0, Edns::max_payload);
            fit(&mut answer, request.queries.as_bytes(), limit.into());
        }
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.response_code = answer.code;
        metadata.authoritative = answer.authoritative;
        metadata.recursion_available = answer.authoritative && self.recursion_available;
        metadata.checking_disabled = false;
        let mut builder = MessageResponseBuilder::from_message_request(request);
        if let Some(edns) = &edns {
            builder.edns(edns);
        }
        let response = builder.build(
            metadata,
            &answer.answers,
            &answer.authority,
            [],
            &answer.additional,
        );
        match respond.send_response(response).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!(%error, client = %request.src(), "an answer was not sent");
                ResponseInfo::from(Header {
                    metadata,
                    counts: HeaderCounts::default(),
                })
            }
        }
    }
}
