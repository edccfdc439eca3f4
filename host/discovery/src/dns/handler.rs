//! Requests as the server library hands them over: what is refused before the zone is asked, and how large an answer may be.

use std::sync::Arc;

use async_trait::async_trait;
use hickory_proto::op::{Edns, Header, HeaderCounts, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::{Record, RecordType};
use hickory_server::net::runtime::Time;
use hickory_server::net::xfer::Protocol;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;

use super::answer::{Answer, Terms, answer};
use crate::Config;
use crate::handle::Shared;
use crate::metrics::{Metrics, Query};

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
            .map(|question| question.query_type())
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
        self.metrics.queries.get_or_create(&Query { qtype, rcode }).inc();
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
fn fit(answer: &mut Answer, limit: usize) {
    /// The head, the question's type and class, and an OPT record.
    const FIXED: usize = 12 + 4 + 11;
    /// A record without its name and data, its name being a pointer.
    const RECORD: usize = 2 + 10;
    let name = |record: &Record| record.name.len() + 1;
    let data = |record: &Record| match &record.data {
        hickory_proto::rr::RData::A(_) => 4,
        hickory_proto::rr::RData::AAAA(_) => 16,
        hickory_proto::rr::RData::SRV(srv) => 6 + srv.target.len() + 1,
        hickory_proto::rr::RData::NS(ns) => ns.len() + 1,
        _ => 100,
    };
    let question = answer.answers.first().map_or(0, name);
    let answers: usize = answer.answers.iter().map(|record| RECORD + data(record)).sum();
    let mut left = limit.saturating_sub(FIXED + question + answers);
    let fits = answer.additional.iter().take_while(|record| {
        let size = RECORD + name(record) + data(record);
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    let fits = fits.count();
    answer.additional.truncate(fits);
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
            fit(
                &mut answer,
                edns.as_ref().map_or(UDP_SIZES.0, Edns::max_payload).into(),
            );
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
