#![allow(clippy::unwrap_used)] // Tests fail by panicking.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RecordType};
use proptest::prelude::*;

use super::*;

fn query(name: &str, kind: RecordType) -> Message {
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
    let mut full_query = with_edns(query("Web.Example.", RecordType::SRV), 1400, &[(65001, b"x")]);
    full_query.metadata.checking_disabled = true;
    full_query.metadata.authentic_data = true;
    let sent = Message::from_vec(&read(&full_query).packet(9)).unwrap();
    assert_eq!(sent.metadata.id, 9);
    full_query.metadata.id = 9;
    assert_eq!(sent, full_query);

    // Flags of responses and hop-by-hop EDNS options are not forwarded.
    let mut all_flags = with_edns(
        query("web.", RecordType::A),
        1400,
        &[(10, &[7; 8]), (12, &[0; 50]), (11, b"")],
    );
    all_flags.metadata.authoritative = true;
    all_flags.metadata.truncation = true;
    all_flags.metadata.recursion_available = true;
    let sent = Message::from_vec(&read(&all_flags).packet(9)).unwrap();
    assert!(!sent.metadata.authoritative && !sent.metadata.truncation && !sent.metadata.recursion_available);
    let edns = sent.edns.unwrap();
    assert!(edns.flags().dnssec_ok && edns.options().as_ref().is_empty());
}

#[test]
fn equal_queries_have_equal_keys() {
    let key = |query: &Message, zone, transport| read(query).key(zone, transport);
    let plain_query = query("web.example.", RecordType::A);
    let plain_key = key(&plain_query, 0, Transport::Udp);
    let mut other_id = plain_query.clone();
    other_id.metadata.id = 1;
    assert_eq!(key(&other_id, 0, Transport::Udp), plain_key);
    assert_eq!(
        key(&query("WEB.Example.", RecordType::A), 0, Transport::Udp),
        plain_key
    );

    let mut keys = vec![
        plain_key,
        key(&plain_query, 1, Transport::Udp),
        key(&plain_query, 0, Transport::Tcp),
    ];
    let mut flagged = [plain_query.clone(), plain_query.clone(), plain_query.clone()];
    flagged[0].metadata.recursion_desired = false;
    flagged[1].metadata.checking_disabled = true;
    flagged[2].metadata.authentic_data = true;
    let different = [
        query("web.example.", RecordType::AAAA),
        query("web.example.com.", RecordType::A),
        with_edns(plain_query.clone(), 512, &[]),
        with_edns(plain_query.clone(), 1232, &[]),
    ];
    for query in flagged.iter().chain(&different) {
        keys.push(key(query, 0, Transport::Udp));
    }
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), count);

    // A cookie is hop-by-hop and not part of the key. The reply to a query with any other option may
    // be specific to its client.
    let cookie = with_edns(plain_query.clone(), 1232, &[(10, &[1; 8])]);
    assert_eq!(
        key(&cookie, 0, Transport::Udp),
        key(&different[3], 0, Transport::Udp)
    );
    assert!(read(&cookie).is_shareable());
    assert!(!read(&with_edns(plain_query, 1232, &[(65001, b"x")])).is_shareable());
}

#[test]
fn limit_and_expected_follow_edns_size() {
    let plain_query = query("web.", RecordType::A);
    for (size, limit) in [
        (None, 512),
        (Some(0), 512),
        (Some(800), 800),
        (Some(1232), 1232),
        (Some(65535), 4096),
    ] {
        let query = match size {
            Some(size) => with_edns(plain_query.clone(), size, &[]),
            None => plain_query.clone(),
        };
        assert_eq!(read(&query).max_reply_bytes(Transport::Udp), limit, "{size:?}");
        assert_eq!(read(&query).max_reply_bytes(Transport::Tcp), 65535, "{size:?}");
    }
}

#[test]
fn coded_answer_keeps_id_question_and_edns() {
    let plain = query("Web.", RecordType::A);
    let answer = Message::from_vec(&read(&plain).error_answer(code::SERVFAIL)).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(
        (answer.metadata.id, answer.metadata.message_type),
        (4660, MessageType::Response)
    );
    assert!(answer.metadata.recursion_desired && answer.edns.is_none());
    assert!(answer.queries[0].name().eq_case(plain.queries[0].name()));
    let answer = Message::from_vec(&read(&with_edns(plain, 4096, &[])).error_answer(code::REFUSED)).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    assert!(answer.edns.unwrap().flags().dnssec_ok);
}

#[test]
fn malformed_query_is_answered_with_formerr() {
    let valid = with_edns(query("web.", RecordType::A), 1232, &[(65001, b"abc")])
        .to_vec()
        .unwrap();
    for size in 0..HEADER {
        assert_eq!(Query::read(&valid[..size]).unwrap_err(), Unreadable::NoHeader);
    }
    for size in HEADER..valid.len() {
        let answer = Query::read(&valid[..size]).unwrap_err().answer();
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
        assert_eq!(answer.metadata.id, 4660);
    }
    let mut none = valid.clone();
    none[5] = 0;
    assert!(Query::read(&none).is_err());
    // A name with a pointer into the header.
    let mut pointing = valid[..HEADER].to_vec();
    pointing[11] = 0;
    pointing.extend([0xc0, 0x02, 0, 1, 0, 1]);
    assert!(Query::read(&pointing).is_err());
    // Two EDNS records, and an option that is longer than its record.
    let mut twice = valid.clone();
    twice.extend_from_slice(&valid[valid.len() - 18..]);
    twice[11] = 2;
    assert!(Query::read(&twice).is_err());
    let mut long = valid.clone();
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
                prop_assert!(query.error_answer(code::SERVFAIL).len() <= usize::from(UDP_PAYLOAD_RANGE.0));
                prop_assert!(query.key(0, Transport::Udp).len() <= packet.len() + 1);
            }
        }
    }
}

#[test]
fn random_case_changes_letters_of_the_name_only() {
    let given = read(&with_edns(
        query("Web-1.of_the.Example.", RecordType::SRV),
        1232,
        &[],
    ));
    let mut spellings = std::collections::HashSet::new();
    for _ in 0..50 {
        let sent = given.with_random_case();
        assert!(sent.question().eq_ignore_ascii_case(given.question()));
        // Type and class, whose bytes may be those of letters.
        let name = given.question().len() - 4;
        assert_eq!(sent.question()[name..], given.question()[name..]);
        assert_eq!(
            sent.key(0, Transport::Udp),
            given.key(0, Transport::Udp),
            "one key for all spellings"
        );
        spellings.insert(sent.question().to_vec());
    }
    assert!(spellings.len() > 30, "{}", spellings.len());
    let root = Query::probe();
    assert_eq!(root.with_random_case().question(), root.question());
}
