#![allow(clippy::unwrap_used)] // Tests fail by panicking.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RecordType};
use proptest::prelude::*;

use super::*;

fn asked(name: &str, kind: RecordType) -> Message {
    let mut query = Message::new(4660, MessageType::Query, OpCode::Query);
    query.add_query(Question::query(Name::from_ascii(name).unwrap(), kind));
    query.metadata.recursion_desired = true;
    query
}

fn with_edns(mut query: Message, size: u16, options: &[(u16, &[u8])]) -> Message {
    let mut edns = Edns::new();
    edns.set_max_payload(size).set_dnssec_ok(true);
    for (code, data) in options {
        edns.options_mut()
            .insert(EdnsOption::Unknown(*code, data.to_vec()));
    }
    query.set_edns(edns);
    query
}

fn read(message: &Message) -> Query {
    Query::read(&message.to_vec().unwrap()).unwrap()
}

#[test]
fn packet_forwards_flags_edns_and_options() {
    let mut query = with_edns(asked("Web.Example.", RecordType::SRV), 1400, &[(65001, b"x")]);
    query.metadata.checking_disabled = true;
    query.metadata.authentic_data = true;
    let sent = Message::from_vec(&read(&query).packet(9)).unwrap();
    assert_eq!(sent.metadata.id, 9);
    query.metadata.id = 9;
    assert_eq!(sent, query);

    // Flags of responses and hop-by-hop EDNS options are not forwarded.
    let mut odd = with_edns(
        asked("web.", RecordType::A),
        1400,
        &[(10, &[7; 8]), (12, &[0; 50]), (11, b"")],
    );
    odd.metadata.authoritative = true;
    odd.metadata.truncation = true;
    odd.metadata.recursion_available = true;
    let sent = Message::from_vec(&read(&odd).packet(9)).unwrap();
    assert!(!sent.metadata.authoritative && !sent.metadata.truncation && !sent.metadata.recursion_available);
    let edns = sent.edns.unwrap();
    assert!(edns.flags().dnssec_ok && edns.options().as_ref().is_empty());
}

#[test]
fn equal_queries_have_equal_keys() {
    let key = |query: &Message, zone, over| read(query).key(zone, over);
    let usual = asked("web.example.", RecordType::A);
    let same = key(&usual, 0, Transport::Udp);
    let mut other_id = usual.clone();
    other_id.metadata.id = 1;
    assert_eq!(key(&other_id, 0, Transport::Udp), same);
    assert_eq!(
        key(&asked("WEB.Example.", RecordType::A), 0, Transport::Udp),
        same
    );

    let mut others = vec![
        same,
        key(&usual, 1, Transport::Udp),
        key(&usual, 0, Transport::Tcp),
    ];
    let mut flagged = [usual.clone(), usual.clone(), usual.clone()];
    flagged[0].metadata.recursion_desired = false;
    flagged[1].metadata.checking_disabled = true;
    flagged[2].metadata.authentic_data = true;
    let different = [
        asked("web.example.", RecordType::AAAA),
        asked("web.example.com.", RecordType::A),
        with_edns(usual.clone(), 512, &[]),
        with_edns(usual.clone(), 1232, &[]),
    ];
    for query in flagged.iter().chain(&different) {
        others.push(key(query, 0, Transport::Udp));
    }
    let count = others.len();
    others.sort();
    others.dedup();
    assert_eq!(others.len(), count);

    // A cookie is hop-by-hop and not part of the key. The reply to a query with any other option may
    // be specific to its client.
    let cookie = with_edns(usual.clone(), 1232, &[(10, &[1; 8])]);
    assert_eq!(
        key(&cookie, 0, Transport::Udp),
        key(&different[3], 0, Transport::Udp)
    );
    assert!(read(&cookie).is_common());
    assert!(!read(&with_edns(usual, 1232, &[(65001, b"x")])).is_common());
}

#[test]
fn limit_and_expected_follow_edns_size() {
    let usual = asked("web.", RecordType::A);
    for (size, limit) in [
        (None, 512),
        (Some(0), 512),
        (Some(800), 800),
        (Some(1232), 1232),
        (Some(65535), 4096),
    ] {
        let query = match size {
            Some(size) => with_edns(usual.clone(), size, &[]),
            None => usual.clone(),
        };
        assert_eq!(read(&query).limit(Transport::Udp), limit, "{size:?}");
        assert_eq!(read(&query).limit(Transport::Tcp), 65535, "{size:?}");
    }
}

#[test]
fn coded_answer_keeps_id_question_and_edns() {
    let plain = asked("Web.", RecordType::A);
    let answer = Message::from_vec(&read(&plain).coded(code::SERVFAIL)).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(
        (answer.metadata.id, answer.metadata.message_type),
        (4660, MessageType::Response)
    );
    assert!(answer.metadata.recursion_desired && answer.edns.is_none());
    assert!(answer.queries[0].name().eq_case(plain.queries[0].name()));
    let answer = Message::from_vec(&read(&with_edns(plain, 4096, &[])).coded(code::REFUSED)).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    assert!(answer.edns.unwrap().flags().dnssec_ok);
}

#[test]
fn malformed_query_is_answered_with_formerr() {
    let good = with_edns(asked("web.", RecordType::A), 1232, &[(65001, b"abc")])
        .to_vec()
        .unwrap();
    for size in 0..HEADER {
        assert_eq!(Query::read(&good[..size]).unwrap_err(), Unreadable::Nothing);
    }
    for size in HEADER..good.len() {
        let answer = Query::read(&good[..size]).unwrap_err().answer();
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
        assert_eq!(answer.metadata.id, 4660);
    }
    let mut none = good.clone();
    none[5] = 0;
    assert!(Query::read(&none).is_err());
    // A name with a pointer into the header.
    let mut pointing = good[..HEADER].to_vec();
    pointing[11] = 0;
    pointing.extend([0xc0, 0x02, 0, 1, 0, 1]);
    assert!(Query::read(&pointing).is_err());
    // Two EDNS records, and an option that is longer than its record.
    let mut twice = good.clone();
    twice.extend_from_slice(&good[good.len() - 18..]);
    twice[11] = 2;
    assert!(Query::read(&twice).is_err());
    let mut long = good.clone();
    let at = long.len() - 4;
    long[at] = 200;
    assert!(Query::read(&long).is_err());
}

proptest! {
    #[test]
    fn any_packet_is_answered_or_forwarded(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
        match Query::read(&packet) {
            Err(unreadable) => prop_assert!(matches!(unreadable.answer().len(), 0 | HEADER)),
            Ok(query) => {
                prop_assert!(Query::read(&query.packet(1)).is_ok());
                prop_assert!(query.coded(code::SERVFAIL).len() <= usize::from(UDP_SIZES.0));
                prop_assert!(query.key(0, Transport::Udp).len() <= packet.len() + 1);
            }
        }
    }
}
