//! Messages on the wire: parses any packet, and encodes responses within a size limit.

use std::net::SocketAddr;

use hickory_proto::ProtoError;
use hickory_proto::op::{Header, HeaderCounts, Message, MessageType, Metadata, Query, emit_message_parts};
use hickory_proto::rr::{RData, Record};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder, BinEncodable, BinEncoder};
use hickory_server::net::xfer::Protocol;
use hickory_server::server::Request;

use crate::dns::respond::{Client, Transport};

/// The UDP payload without EDNS.
pub(super) const MIN_UDP_PAYLOAD: u16 = 512;
/// The maximum UDP payload, in both directions: larger packets are lost on some networks.
pub(super) const MAX_UDP_PAYLOAD: u16 = 1232;
/// The length of a header.
const HEADER: usize = 12;
/// The length of an EDNS record without options, which is all that we send.
const OPT: u16 = 11;

/// The maximum number of records in a query. EDNS, a signature, and the SOA record of IXFR or NOTIFY
/// are three; updates, which are rejected, may have more.
const MAX_QUERY_RECORDS: usize = 8;

/// The kind of a packet.
#[derive(Debug)]
pub(super) enum Packet {
    /// Not answered: no header, or a response (two servers would answer each other endlessly).
    Silence,
    /// A header followed by malformed data.
    Unreadable(Metadata),
    /// A request.
    Request(Box<Request>),
}

/// Parses any packet of a client.
pub(super) fn read(packet: &[u8], client: Client) -> Packet {
    let Ok(header) = Header::read(&mut BinDecoder::new(packet)) else {
        return Packet::Silence;
    };
    if header.metadata.message_type == MessageType::Response {
        return Packet::Silence;
    }
    // A truncated query is incomplete.
    if header.metadata.truncation {
        return Packet::Unreadable(header.metadata);
    }
    if !is_plausible(header.counts) {
        return Packet::Unreadable(header.metadata);
    }
    let protocol = match client.transport {
        Transport::Udp => Protocol::Udp,
        Transport::Tcp => Protocol::Tcp,
    };
    // The source port has no influence on an answer.
    match Request::from_bytes(packet.to_vec(), SocketAddr::new(client.ip, 0), protocol) {
        Ok(request) => Packet::Request(Box::new(request)),
        Err(_) => Packet::Unreadable(header.metadata),
    }
}

/// The maximum size of the response to a request.
pub(super) fn response_limit(request: &Request) -> u16 {
    match request.protocol() {
        Protocol::Udp => request.edns.as_ref().map_or(MIN_UDP_PAYLOAD, |edns| {
            edns.max_payload().clamp(MIN_UDP_PAYLOAD, MAX_UDP_PAYLOAD)
        }),
        _ => u16::MAX,
    }
}

/// Whether a query can have these counts. The parser allocates for them, and follows the pointers in
/// the names of each record, of which a packet has room for a chain of thousands.
fn is_plausible(counts: HeaderCounts) -> bool {
    let records = [counts.answers, counts.authorities, counts.additionals];
    counts.queries <= 1 && records.into_iter().map(usize::from).sum::<usize>() <= MAX_QUERY_RECORDS
}

/// Encodes a response within `limit` bytes, see [`fit`].
pub(super) fn write(mut response: Message, limit: u16) -> Result<Vec<u8>, ProtoError> {
    let (bytes, is_complete) = emit(&response, limit)?;
    if is_complete {
        return Ok(bytes);
    }
    cut(&mut response, limit)?;
    emit(&response, limit).map(|(bytes, _)| bytes)
}

/// Makes a response fit into `limit` bytes. Records that do not fit are omitted from the end: with
/// the TC flag for answers and authority, without it for additional records (RFC 2181, section 9).
/// EDNS always fits.
pub(super) fn fit(response: &mut Message, limit: u16) -> Result<(), ProtoError> {
    if max_length(response) <= limit.into() || emit(response, limit)?.1 {
        return Ok(());
    }
    cut(response, limit)
}

/// The length of a response without name compression, or more.
fn max_length(response: &Message) -> usize {
    /// Type, class, TTL and length of the data.
    const FIXED_RECORD_BYTES: usize = 10;
    /// Of the names in data that is not listed below.
    const MAX_DATA_BYTES: usize = 2 * 255 + 20;
    let questions = response.queries.iter().map(|query| query.name().len() + 5);
    let records = [&response.answers, &response.authorities, &response.additionals];
    let records = records.into_iter().flatten().map(|record| {
        let data = match &record.data {
            RData::A(_) => 4,
            RData::AAAA(_) => 16,
            RData::SRV(srv) => 7 + srv.target.len(),
            _ => MAX_DATA_BYTES,
        };
        record.name.len() + 1 + FIXED_RECORD_BYTES + data
    });
    HEADER + usize::from(OPT) + questions.chain(records).sum::<usize>()
}

/// Encodes as much as fits. Returns whether that is everything.
fn emit(response: &Message, limit: u16) -> Result<(Vec<u8>, bool), ProtoError> {
    let mut bytes = Vec::with_capacity(512);
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_max_size(limit);
    let header = emit_message_parts(
        &response.metadata,
        &mut response.queries.iter(),
        &mut response.answers.iter(),
        &mut response.authorities.iter(),
        &mut response.additionals.iter(),
        response.edns.as_ref(),
        None,
        &mut encoder,
    )?;
    let is_complete = header.metadata.truncation == response.metadata.truncation;
    Ok((bytes, is_complete))
}

/// Removes records that do not fit, measured by encoding them with name compression.
fn cut(response: &mut Message, limit: u16) -> Result<(), ProtoError> {
    let room = limit.saturating_sub(if response.edns.is_some() { OPT } else { 0 });
    let mut bytes = Vec::with_capacity(room.into());
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_max_size(room);
    encoder.emit_vec(&[0; HEADER])?;
    for query in &response.queries {
        Query::emit(query, &mut encoder)?;
    }
    let mut full = false;
    for section in [&mut response.answers, &mut response.authorities] {
        full |= keep_fitting(section, full, &mut encoder)?;
    }
    response.metadata.truncation = full;
    keep_fitting(&mut response.additionals, full, &mut encoder)?;
    Ok(())
}

/// Keeps the records of a section that still fit. Returns whether any were removed.
fn keep_fitting(
    section: &mut Vec<Record>,
    full: bool,
    encoder: &mut BinEncoder<'_>,
) -> Result<bool, ProtoError> {
    let before = section.len();
    if full {
        section.clear();
    } else {
        match encoder.emit_all(section.iter()) {
            Ok(_) => {}
            Err(ProtoError::NotAllRecordsWritten { count, .. }) => section.truncate(count),
            Err(error) => return Err(error),
        }
    }
    Ok(section.len() < before)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

    use hickory_proto::op::{Edns, OpCode};
    use hickory_proto::rr::rdata::A;
    use hickory_proto::rr::{Name, RecordType};

    use super::*;

    fn packet(packet: &[u8]) -> Packet {
        read(packet, Client::new([10, 0, 0, 1].into(), Transport::Udp))
    }

    fn name(label: &str) -> Name {
        Name::from_labels([label.as_bytes(), b"marathon", b"mesos"]).unwrap()
    }

    fn records(label: &str, count: u32) -> Vec<Record> {
        let record = |n: u32| Record::from_rdata(name(label), 60, RData::A(A(n.into())));
        (0..count).map(record).collect()
    }

    fn response(answers: u32, authorities: u32, additionals: u32, edns: bool) -> Message {
        let mut response = Message::new(7, MessageType::Response, OpCode::Query);
        response.add_query(Query::query(name("web"), RecordType::A));
        response.answers = records("web", answers);
        response.authorities = records("authority", authorities);
        response.additionals = records("additional", additionals);
        response.edns = edns.then(Edns::new);
        response
    }

    #[test]
    fn written_response_fits_and_reports_truncation() {
        for limit in [512, 700, 1232] {
            for edns in [false, true] {
                for (answers, authorities, additionals) in [
                    (1, 1, 1),
                    (20, 0, 40),
                    (20, 40, 5),
                    (100, 1, 1),
                    (0, 0, 100),
                    (5000, 0, 0),
                ] {
                    let full = response(answers, authorities, additionals, edns);
                    let bytes = write(full.clone(), limit).unwrap();
                    assert!(bytes.len() <= limit.into(), "{} of {limit}", bytes.len());
                    let read = Message::from_vec(&bytes).unwrap();
                    let missing = read.answers.len() < full.answers.len()
                        || read.authorities.len() < full.authorities.len();
                    assert_eq!(read.metadata.truncation, missing, "{read}");
                    assert_eq!(read.edns.is_some(), edns, "{read}");
                    if missing {
                        assert!(read.additionals.is_empty(), "{read}");
                    }
                    // Another record would not have fitted: it has 16 bytes, and 11 more if its
                    // label is not in the message yet.
                    let cut = missing || read.additionals.len() < full.additionals.len();
                    assert!(
                        !cut || bytes.len() + 16 + 11 > limit.into(),
                        "{} of {limit}",
                        bytes.len()
                    );
                }
            }
        }
    }

    #[test]
    fn read_classifies_packets() {
        let mut request = response(0, 0, 0, true);
        request.metadata.message_type = MessageType::Query;
        let request = request.to_vec().unwrap();
        assert!(matches!(packet(&request), Packet::Request(_)));
        for size in 0..12 {
            assert!(matches!(packet(&request[..size]), Packet::Silence), "{size}");
        }
        for size in 12..request.len() {
            assert!(
                matches!(packet(&request[..size]), Packet::Unreadable(_)),
                "{size}"
            );
        }
        let mut cut = request.clone();
        cut[2] |= 2;
        assert!(matches!(packet(&cut), Packet::Unreadable(_)));
        let answered = response(1, 0, 0, false).to_vec().unwrap();
        assert!(matches!(packet(&answered), Packet::Silence));
        // A header alone, which announces 65,535 entries in every section.
        let mut oversized_counts = [0xff; 12];
        oversized_counts[2..4].copy_from_slice(&[0, 0]);
        assert!(matches!(packet(&oversized_counts), Packet::Unreadable(metadata) if metadata.id == 0xffff));
    }

    #[test]
    fn query_has_one_question_and_few_records() {
        let max = MAX_QUERY_RECORDS as u32;
        for (questions, answers, authorities, additionals, is_read) in [
            (0, 0, 0, 0, true),
            (1, max, 0, 0, true),
            (1, 0, max, 0, true),
            (1, 0, 0, max, true),
            (1, 1, 1, max - 2, true),
            (2, 0, 0, 0, false),
            (1, max + 1, 0, 0, false),
            (1, 0, max + 1, 0, false),
            (1, 0, 0, max + 1, false),
            (1, 1, 1, max - 1, false),
        ] {
            let mut request = response(answers, authorities, additionals, false);
            request.metadata.message_type = MessageType::Query;
            request.queries = vec![Query::query(name("web"), RecordType::A); questions];
            let packet = packet(&request.to_vec().unwrap());
            assert_eq!(matches!(packet, Packet::Request(_)), is_read, "{request}");
            assert_eq!(matches!(packet, Packet::Unreadable(_)), !is_read, "{request}");
        }
    }

    #[test]
    fn records_that_point_to_a_chain_of_pointers_are_not_parsed() {
        const POINTERS: u16 = 8000;
        const RECORDS: u16 = 100;
        let mut hostile = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0];
        hostile.extend((RECORDS + 1).to_be_bytes());
        // The question, and a record of the root whose data (type NULL) is the chain.
        hostile.extend([0, 0, 1, 0, 1, 0, 0, 10, 0, 1, 0, 0, 0, 0]);
        hostile.extend((2 * POINTERS).to_be_bytes());
        let chain = hostile.len() as u16;
        hostile.extend((0xc000 | HEADER as u16).to_be_bytes());
        for n in 1..POINTERS {
            hostile.extend((0xc000 | (chain + 2 * (n - 1))).to_be_bytes());
        }
        for _ in 0..RECORDS {
            hostile.extend((0xc000 | (chain + 2 * (POINTERS - 1))).to_be_bytes());
            hostile.extend([0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 10, 0, 0, 1]);
        }
        assert!(Message::from_vec(&hostile).is_ok(), "the records are valid");
        assert!(matches!(packet(&hostile), Packet::Unreadable(metadata) if metadata.id == 7));
    }
}
