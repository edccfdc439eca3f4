//! Answers requests from one version of the zone, as a handler of hickory-server.
//!
//! It answers every request, if only with a code. [`Handler`](super::Handler) forwards some requests
//! and answers some with a transfer; this handler would reject these. No I/O, no waiting: the
//! future of [`RequestHandler::handle_request`] is ready at its first poll.

use std::sync::Arc;

use async_trait::async_trait;
use hickory_proto::op::{
    Edns, Header, HeaderCounts, Message, MessageType, Metadata, OpCode, Query, ResponseCode,
};
use hickory_proto::rr::{DNSClass, RecordType};
use hickory_proto::serialize::binary::{BinDecoder, BinEncodable};
use hickory_server::net::runtime::Time;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::{MessageResponseBuilder, Queries};
use transom_common::error_chain;

use super::answer::{Answer, ZoneAuthority, answer};
use super::wire::{self, MAX_UDP_PAYLOAD};
use crate::dns::packet::has_pointer;
use crate::zone::Zone;

/// Answers from a zone; SERVFAIL without one.
pub(super) struct ZoneHandler {
    pub(super) zone: Option<Arc<Zone>>,
    pub(super) zone_authority: Arc<ZoneAuthority>,
}

#[async_trait]
impl RequestHandler for ZoneHandler {
    /// Sends one response. It fits into the limit of the request's transport, so that
    /// hickory-server, which would leave out EDNS, never truncates it.
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut response_handler: R,
    ) -> ResponseInfo {
        let question = question_section(request);
        let question = question.as_ref().unwrap_or(&request.queries);
        let response = self.response(request);
        let message = MessageResponseBuilder::new(question, response.edns.as_ref()).build(
            response.metadata,
            &response.answers,
            &response.authorities,
            [],
            &response.additionals,
        );
        let error = match response_handler.send_response(message).await {
            Ok(info) => return info,
            Err(error) => error,
        };
        tracing::error!(error = error_chain(&error), "encoding a DNS answer failed");
        let metadata = response_metadata(&request.metadata, ResponseCode::ServFail);
        let message = MessageResponseBuilder::new(question, None).build_no_records(metadata);
        let failed = ResponseInfo::from(Header {
            metadata,
            counts: HeaderCounts::default(),
        });
        response_handler.send_response(message).await.unwrap_or(failed)
    }
}

impl ZoneHandler {
    fn response(&self, request: &Request) -> Message {
        let answer = self.answer(request);
        let mut response = Message::new(
            request.metadata.id,
            MessageType::Response,
            request.metadata.op_code,
        );
        response.metadata = response_metadata(&request.metadata, answer.code);
        response.metadata.authoritative = answer.authoritative;
        response.metadata.recursion_available =
            answer.authoritative && self.zone_authority.recursion_available;
        response.edns = edns_for(request);
        if let [question] = request.queries.queries() {
            response.queries = vec![question.original().clone()];
        }
        response.answers = answer.answers;
        response.authorities = answer.authority;
        response.additionals = answer.additional;
        // If this fails, sending the response fails as well, and is logged and answered with SERVFAIL.
        if wire::fit(&mut response, wire::response_limit(request)).is_ok() {
            response.metadata.truncation &= self.zone_authority.set_truncate_bit;
        }
        response
    }

    fn answer(&self, request: &Request) -> Answer {
        let question = match question(request) {
            Ok(question) => question,
            Err(code) => return Answer::rejection(code),
        };
        let Some(zone) = &self.zone else {
            return Answer::rejection(ResponseCode::ServFail);
        };
        let (name, kind) = (question.name(), question.query_type());
        let found = match kind {
            RecordType::AXFR | RecordType::IXFR => None,
            _ => answer(zone, &self.zone_authority, request.src().ip(), name, kind),
        };
        found.unwrap_or_else(|| Answer::rejection(ResponseCode::Refused))
    }
}

/// The question, if a zone can have an answer to it; otherwise the code of the rejection.
pub(super) fn question(request: &Request) -> Result<&Query, ResponseCode> {
    match request.metadata.op_code {
        OpCode::Query => {}
        OpCode::Notify | OpCode::Update => return Err(ResponseCode::Refused),
        OpCode::Status | OpCode::Unknown(_) => return Err(ResponseCode::NotImp),
    }
    if request.version() != 0 {
        return Err(ResponseCode::BADVERS);
    }
    let [question] = request.queries.queries() else {
        return Err(ResponseCode::FormErr);
    };
    if question.query_class() != DNSClass::IN {
        return Err(ResponseCode::Refused);
    }
    Ok(question.original())
}

/// The question section of the response, where the request's own bytes cannot be repeated: it has
/// no section unless there is one question, and a pointer may refer to bytes that differ in the
/// response.
fn question_section(request: &Request) -> Option<Queries> {
    let written = match request.queries.queries() {
        [_] if !has_pointer(request.queries.as_bytes()) => return None,
        [question] => question.to_bytes().ok()?,
        _ => Vec::new(),
    };
    let count = usize::from(!written.is_empty());
    Queries::read(&mut BinDecoder::new(&written), count).ok()
}

/// EDNS for an answer to a query with EDNS. Its size is our own limit (RFC 6891, section 6.2.3).
fn edns_for(request: &Request) -> Option<Edns> {
    let request_edns = request.edns.as_ref()?;
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_UDP_PAYLOAD);
    edns.set_version(0);
    edns.set_dnssec_ok(request_edns.flags().dnssec_ok);
    Some(edns)
}

/// The header of a response with a code.
pub(super) fn response_metadata(request: &Metadata, code: ResponseCode) -> Metadata {
    let mut metadata = Metadata::response_from_request(request);
    metadata.response_code = code;
    metadata.checking_disabled = false;
    metadata
}
