//! Messages on the wire: parses any packet, and encodes responses within a size limit.

use hickory_proto::ProtoError;
use hickory_proto::op::{Header, Message, MessageType, Metadata, Query, emit_message_parts};
use hickory_proto::rr::Record;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder, BinEncodable, BinEncoder};

/// The kind of a packet.
#[derive(Debug)]
pub(super) enum Packet {
    /// Not answered: no header, or a response (two servers would answer each other for ever).
    Silence,
    /// A header followed by malformed data.
    Unreadable(Metadata),
    /// A request.
    Request(Message),
}

/// Parses any packet.
pub(super) fn read(packet: &[u8]) -> Packet {
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
    let message = could_hold(packet, &header).then(|| Message::from_vec(packet));
    match message {
        Some(Ok(message)) => Packet::Request(message),
        _ => Packet::Unreadable(header.metadata),
    }
}

/// Whether a packet is long enough for its announced counts, which the parser allocates for.
fn could_hold(packet: &[u8], header: &Header) -> bool {
    /// The minimum of a question (root name, type, class) and of a record (with TTL and length).
    const SMALLEST: (usize, usize) = (5, 11);
    const HEAD: usize = 12;
    let counts = &header.counts;
    let records = [counts.answers, counts.authorities, counts.additionals];
    let records: usize = records.into_iter().map(usize::from).sum();
    HEAD + SMALLEST.0 * usize::from(counts.queries) + SMALLEST.1 * records <= packet.len()
}

/// Encodes a response within `limit` bytes. Records that do not fit are omitted from the end: with the TC flag
/// for answers and authority, without it for additional records (RFC 2181, section 9). EDNS always fits.
pub(super) fn write(mut response: Message, limit: u16) -> Result<Vec<u8>, ProtoError> {
    let (bytes, whole) = emit(&response, limit)?;
    if whole {
        return Ok(bytes);
    }
    cut(&mut response, limit)?;
    emit(&response, limit).map(|(bytes, _)| bytes)
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
    let whole = header.metadata.truncation == response.metadata.truncation;
    Ok((bytes, whole))
}

/// Removes records that do not fit, measured by encoding them with name compression.
fn cut(response: &mut Message, limit: u16) -> Result<(), ProtoError> {
    const HEAD: [u8; 12] = [0; 12];
    /// Without options, which we never send.
    const OPT: u16 = 11;
    let room = limit.saturating_sub(if response.edns.is_some() { OPT } else { 0 });
    let mut bytes = Vec::with_capacity(room.into());
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_max_size(room);
    encoder.emit_vec(&HEAD)?;
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
    #![allow(clippy::unwrap_used, clippy::panic)] // Tests: a failure is their answer.

    use hickory_proto::op::{Edns, OpCode};
    use hickory_proto::rr::rdata::A;
    use hickory_proto::rr::{Name, RData, RecordType};

    use super::*;

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
                    let whole = response(answers, authorities, additionals, edns);
                    let bytes = write(whole.clone(), limit).unwrap();
                    assert!(bytes.len() <= limit.into(), "{} of {limit}", bytes.len());
                    let read = Message::from_vec(&bytes).unwrap();
                    let missing = read.answers.len() < whole.answers.len()
                        || read.authorities.len() < whole.authorities.len();
                    assert_eq!(read.metadata.truncation, missing, "{read}");
                    assert_eq!(read.edns.is_some(), edns, "{read}");
                    if missing {
                        assert!(read.additionals.is_empty(), "{read}");
                    }
                    // Another record would not have fitted: 16 bytes, and a name of its own at first.
                    let cut = missing || read.additionals.len() < whole.additionals.len();
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
        assert!(matches!(read(&request), Packet::Request(_)));
        for size in 0..12 {
            assert!(matches!(read(&request[..size]), Packet::Silence), "{size}");
        }
        for size in 12..request.len() {
            assert!(matches!(read(&request[..size]), Packet::Unreadable(_)), "{size}");
        }
        let mut cut = request.clone();
        cut[2] |= 2;
        assert!(matches!(read(&cut), Packet::Unreadable(_)));
        let answered = response(1, 0, 0, false).to_vec().unwrap();
        assert!(matches!(read(&answered), Packet::Silence));
        // 65535 of everything in a packet with nothing.
        let mut boast = [0xff; 12];
        boast[2..4].copy_from_slice(&[0, 0]);
        assert!(matches!(read(&boast), Packet::Unreadable(metadata) if metadata.id == 0xffff));
    }
}
