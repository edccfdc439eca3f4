#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, CNAME, NS, SOA};
use hickory_proto::rr::{RData, RecordType};
use proptest::prelude::*;

use super::*;
use crate::dns::Transport;

const ID: u16 = 7;

fn name(name: &str) -> Name {
    Name::from_ascii(name).unwrap()
}

fn query(kind: RecordType) -> Query {
    let mut query = Message::new(4660, MessageType::Query, OpCode::Query);
    query.add_query(Question::query(name("Web.Example."), kind));
    Query::read(&query.to_vec().unwrap()).unwrap()
}

fn a(owner: &str, ttl: u32, last: u8) -> hickory_proto::rr::Record {
    hickory_proto::rr::Record::from_rdata(name(owner), ttl, RData::A(A([192, 0, 2, last].into())))
}

fn soa(ttl: u32, minimum: u32) -> hickory_proto::rr::Record {
    let soa = SOA::new(name("ns.example."), name("root.example."), 7, 60, 60, 60, minimum);
    hickory_proto::rr::Record::from_rdata(name("example."), ttl, RData::SOA(soa))
}

fn message(code: ResponseCode) -> Message {
    let mut message = Message::new(ID, MessageType::Response, OpCode::Query);
    message.add_query(Question::query(name("web.example."), RecordType::A));
    message.metadata.response_code = code;
    message.metadata.recursion_available = true;
    message
}

fn parsed(message: &Message) -> Reply {
    match Reply::classify(&query(RecordType::A), ID, &message.to_vec().unwrap()) {
        ReplyKind::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn with(answers: &[hickory_proto::rr::Record], authorities: &[hickory_proto::rr::Record]) -> Message {
    let mut message = message(ResponseCode::NoError);
    message.answers = answers.to_vec();
    message.authorities = authorities.to_vec();
    message
}

fn encoded(reply: &Reply, age: u64, remaining: u64, limit: usize, set_truncate_bit: bool) -> Message {
    let (age, remaining) = (Duration::from_secs(age), Duration::from_secs(remaining));
    let bytes = reply.encode_for(
        &query(RecordType::A),
        age,
        remaining,
        SizeLimit {
            bytes: limit,
            set_truncate_bit,
        },
    );
    assert!(bytes.len() <= limit, "{} of {limit}", bytes.len());
    let message = Message::from_vec(&bytes).unwrap();
    assert_eq!(message.metadata.id, 4660);
    message
}

#[test]
fn hear_accepts_only_the_matching_reply() {
    let valid = with(&[a("web.example.", 30, 1)], &[]);
    let is = |expected: &str, message: &Message| {
        let reply_kind = Reply::classify(&query(RecordType::A), ID, &message.to_vec().unwrap());
        let kind_text = format!("{reply_kind:?}");
        assert!(
            kind_text.starts_with(expected),
            "{kind_text}, not {expected}: {message}"
        );
    };
    is("Reply", &valid);
    let changed = |change: fn(&mut Message)| {
        let mut message = valid.clone();
        change(&mut message);
        message
    };
    is("Unrelated", &changed(|it| it.metadata.id = 8));
    is(
        "Unrelated",
        &changed(|it| it.metadata.message_type = MessageType::Query),
    );
    is(
        "Unrelated",
        &changed(|it| it.queries[0] = Question::query(name("web.example.com."), RecordType::A)),
    );
    is(
        "Unrelated",
        &changed(|it| it.queries[0] = Question::query(name("web.example."), RecordType::AAAA)),
    );
    is("Unrelated", &changed(|it| it.queries.clear()));
    is("Invalid", &changed(|it| it.metadata.op_code = OpCode::Notify));
    // A rejection need not repeat the question.
    is(
        "Reply",
        &changed(|it| {
            it.queries.clear();
            it.answers.clear();
            it.metadata.response_code = ResponseCode::FormErr;
        }),
    );

    let bytes = valid.to_vec().unwrap();
    for size in 0..bytes.len() {
        let reply_kind = Reply::classify(&query(RecordType::A), ID, &bytes[..size]);
        assert!(!matches!(reply_kind, ReplyKind::Reply(_)), "{size}");
    }
    // A reply with the TC flag may be truncated within a record.
    let mut cut = changed(|it| it.metadata.truncation = true).to_vec().unwrap();
    cut.pop();
    let ReplyKind::Reply(reply) = Reply::classify(&query(RecordType::A), ID, &cut) else {
        panic!("a reply with the TC flag may be incomplete");
    };
    assert!(encoded(&reply, 0, 0, 512, true).answers.is_empty());
}

#[test]
fn lifetime_depends_on_code_and_ttls() {
    let cname = || {
        let target = RData::CNAME(CNAME(name("target.example.")));
        hickory_proto::rr::Record::from_rdata(name("web.example."), 20, target)
    };
    let ns = hickory_proto::rr::Record::from_rdata(name("example."), 90, RData::NS(NS(name("ns.example."))));
    let nx = |records: &[_]| {
        let mut message = message(ResponseCode::NXDomain);
        message.authorities = records.to_vec();
        message
    };
    let mut truncated = with(&[a("web.example.", 30, 1)], &[]);
    truncated.metadata.truncation = true;
    let mut badvers = with(&[a("web.example.", 30, 1)], &[]);
    badvers.metadata.response_code = ResponseCode::BADVERS;
    badvers.set_edns(Edns::new());
    let mut with_edns = with(&[a("web.example.", 30, 1)], &[]);
    with_edns.set_edns(Edns::new());
    for (what, message, seconds) in [
        ("an answer", with(&[a("web.example.", 30, 1)], &[]), 30),
        ("the EDNS record has no TTL", with_edns, 30),
        (
            "the shortest TTL",
            with(&[a("web.example.", 30, 1), a("web.example.", 10, 2)], &[]),
            10,
        ),
        (
            "authority counts",
            with(&[a("web.example.", 300, 1)], std::slice::from_ref(&ns)),
            90,
        ),
        ("a chain", with(&[cname(), a("target.example.", 30, 1)], &[]), 20),
        ("TTL 0", with(&[a("web.example.", 0, 1)], &[]), 0),
        (
            "a day at most",
            with(&[a("web.example.", 1_000_000, 1)], &[]),
            86_400,
        ),
        (
            "a negative TTL counts as 0",
            with(&[a("web.example.", 0x8000_0000, 1)], &[]),
            0,
        ),
        ("no name", nx(&[soa(300, 60)]), 60),
        ("no name, limited by the TTL of the SOA", nx(&[soa(50, 60)]), 50),
        (
            "no name, three hours at most",
            nx(&[soa(1_000_000, 1_000_000)]),
            3 * 3600,
        ),
        ("no name, without an SOA", nx(&[]), 0),
        ("no data", with(&[], &[soa(300, 60)]), 60),
        (
            "no data at the end of a chain",
            with(&[cname()], &[soa(300, 60)]),
            20,
        ),
        ("a chain without data or SOA", with(&[cname()], &[]), 0),
        ("a referral", with(&[], &[ns]), 0),
        ("truncated", truncated, 0),
        ("EDNS error", badvers, 0),
        ("failure", message(ResponseCode::ServFail), 1),
        ("refusal", message(ResponseCode::Refused), 1),
        ("not implemented", message(ResponseCode::NotImp), 0),
    ] {
        let lifetime = parsed(&message).lifetime(1);
        assert_eq!(lifetime, Duration::from_secs(seconds), "{what}");
    }
    let any_ttl = parsed(&with(&[a("web.example.", 30, 1)], &[])).lifetime(kind::ANY);
    assert_eq!(any_ttl, Duration::from_secs(30));
}

#[test]
fn deliver_changes_only_id_and_case() {
    let mut message = with(
        &[a("web.example.", 30, 1), a("WEB.example.", 30, 2)],
        &[soa(9, 9)],
    );
    message.metadata.authoritative = true;
    message.metadata.authentic_data = true;
    let mut edns = Edns::new();
    edns.set_max_payload(1400).set_dnssec_ok(true);
    edns.options_mut()
        .insert(EdnsOption::Unknown(65001, b"x".to_vec()));
    message.set_edns(edns);
    let encoded = encoded(&parsed(&message), 0, 30, 512, true);
    message.metadata.id = 4660;
    assert_eq!(encoded, message);
    // The question has the case that the client sent.
    assert!(encoded.queries[0].name().eq_case(&name("Web.Example.")));
}

#[test]
fn deliver_reduces_ttls_by_age() {
    let mut message = with(&[a("web.example.", 30, 1), a("web.example.", 300, 2)], &[]);
    message.set_edns(Edns::new());
    let reply = parsed(&message);
    let at = |age, remaining| {
        let records = encoded(&reply, age, remaining, 512, true).answers;
        records.iter().map(|record| record.ttl).collect::<Vec<_>>()
    };
    assert_eq!(at(0, 30), [30, 300]);
    assert_eq!(at(29, 1), [1, 1]);
    assert_eq!(at(10, 300), [20, 290]);
    assert!(encoded(&reply, 10, 20, 512, true).edns.is_some());
    // A negative reply is not cached for longer than its SOA record allows (RFC 2308, section 5).
    let negative = parsed(&with(&[], &[soa(300, 60)]));
    let ttl = |age, remaining| encoded(&negative, age, remaining, 512, true).authorities[0].ttl;
    assert_eq!((ttl(0, 60), ttl(1, 59)), (300, 59));
}

#[test]
fn truncated_reply_keeps_whole_rrsets() {
    let five: Vec<_> = (0..5).map(|n| a("few.example.", 30, n)).collect();
    let sixty: Vec<_> = (0..60).map(|n| a("many.example.", 30, n)).collect();
    let mut message = with(&[&five[..], &sixty].concat(), &[soa(9, 9)]);
    message.additionals = five.clone();
    let reply = parsed(&message);
    let cut = encoded(&reply, 0, 30, 512, true);
    assert_eq!(
        (cut.answers.len(), cut.authorities.len(), cut.additionals.len()),
        (5, 0, 0)
    );
    assert!(cut.metadata.truncation);
    // Without the TC flag the reply contains as much as fits.
    let unmarked = encoded(&reply, 0, 30, 512, false);
    assert!(unmarked.answers.len() > 20 && !unmarked.metadata.truncation);

    // The records of a set need not be adjacent.
    let mut split = five.clone();
    split.extend_from_slice(&sixty);
    split.push(a("few.example.", 30, 99));
    let cut = encoded(&parsed(&with(&split, &[])), 0, 30, 512, true);
    assert!(cut.answers.is_empty() && cut.metadata.truncation);

    // A truncated additional section needs no TC flag, but its record sets are also whole.
    let mut long_additionals = with(&five, &[]);
    long_additionals.additionals = [&five[..], &sixty].concat();
    let mut edns = Edns::new();
    edns.options_mut().insert(EdnsOption::Unknown(65001, vec![0; 20]));
    long_additionals.set_edns(edns.clone());
    let cut = encoded(&parsed(&long_additionals), 0, 30, 512, true);
    assert_eq!((cut.answers.len(), cut.additionals.len()), (5, 5));
    assert!(!cut.metadata.truncation);
    assert_eq!(cut.edns.as_ref(), Some(&edns));

    // EDNS that would exceed the size limit loses its options.
    let mut long_options = with(&sixty, &[]);
    edns.options_mut()
        .insert(EdnsOption::Unknown(65002, vec![0; 600]));
    long_options.set_edns(edns);
    let cut = encoded(&parsed(&long_options), 0, 30, 512, true);
    assert!(cut.metadata.truncation && cut.edns.unwrap().options().as_ref().is_empty());

    // Without `set_truncate_bit` the flag is cleared, even if the resolver set it.
    message.metadata.truncation = true;
    assert!(encoded(&parsed(&message), 0, 0, 4096, true).metadata.truncation);
    assert!(!encoded(&parsed(&message), 0, 0, 4096, false).metadata.truncation);
}

/// A valid reply with a few damaged bytes, possibly truncated.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    let valid = (0u8..80, 0u8..4, 0u8..40, any::<bool>(), any::<bool>()).prop_map(
        |(answers, soas, additionals, edns, tc)| {
            let mut message = with(&[], &[]);
            message.answers = (0..answers)
                .map(|n| a(if n % 7 == 0 { "other." } else { "web.example." }, 30, n))
                .collect();
            message.authorities = (0..soas).map(|n| soa(n.into(), 60)).collect();
            message.additionals = (0..additionals).map(|n| a("more.example.", 30, n)).collect();
            message.metadata.truncation = tc;
            if !edns {
                return message.to_vec().unwrap();
            }
            let mut edns = Edns::new();
            let noise = vec![0; usize::from(additionals) * 20];
            let length = 11 + 4 + noise.len();
            edns.options_mut().insert(EdnsOption::Unknown(65001, noise));
            message.set_edns(edns);
            let mut bytes = message.to_vec().unwrap();
            if additionals % 5 == 1 {
                // With an owner other than the root it is not an EDNS record.
                let at = bytes.len() - length;
                bytes.splice(at..at, *b"\x01x").for_each(drop);
            }
            bytes
        },
    );
    let damage = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6);
    (
        valid,
        damage,
        proptest::option::of(any::<proptest::sample::Index>()),
    )
        .prop_map(|(mut bytes, damage, end)| {
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                // The id and the question stay unchanged, else most replies would match no query.
                if !(HEADER..HEADER + 17).contains(&at) && at > 2 {
                    bytes[at] = byte;
                }
            }
            if let Some(end) = end {
                bytes.truncate(HEADER + 17 + end.index(bytes.len()));
            }
            bytes
        })
}

proptest! {
    #[test]
    fn delivered_reply_fits_and_parses(
        bytes in anything(), limit in 512usize..5000, set_truncate_bit: bool, age in 0u64..100, remaining in 0u64..100,
    ) {
        let query = query(RecordType::A);
        if let ReplyKind::Reply(reply) = Reply::classify(&query, ID, &bytes) {
            reply.lifetime(query.kind());
            let (age, remaining) = (Duration::from_secs(age), Duration::from_secs(remaining));
            let encoded = reply.encode_for(&query, age, remaining, SizeLimit { bytes: limit, set_truncate_bit });
            prop_assert!(encoded.len() <= limit, "{} of {limit}", encoded.len());
            let layout = Layout::read(&encoded).unwrap();
            prop_assert!(layout.is_complete && layout.end() == encoded.len());
            prop_assert_eq!(layout.opt().is_some(), reply.layout.opt().is_some());
            let cut = Flags::of(&encoded).unwrap().has(Flags::TRUNCATED);
            prop_assert!(set_truncate_bit || !cut);
            let answers = |layout: &Layout| {
                layout.records.iter().filter(|record| record.section == Section::Answer).count()
            };
            prop_assert!(!set_truncate_bit || cut || answers(&layout) == answers(&reply.layout));
        }
    }

    #[test]
    fn classify_survives_random_packets(mut bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        if bytes.len() >= HEADER {
            bytes[..6].copy_from_slice(&[0, 7, 0x80, 5, 0, 0]);
        }
        let query = query(RecordType::A);
        if let ReplyKind::Reply(reply) = Reply::classify(&query, ID, &bytes) {
            let size_limit = SizeLimit { bytes: query.max_reply_bytes(Transport::Udp), set_truncate_bit: true };
            let encoded = reply.encode_for(&query, Duration::ZERO, Duration::ZERO, size_limit);
            prop_assert!(encoded.len() <= 512);
        }
    }
}

/// A resolver may copy the name of the question into a record, in full or up to a pointer.
#[test]
fn deliver_restores_the_case_of_owners_that_are_the_questions_name() {
    let question = b"\x03wEb\x07eXAMPLE\x00\x00\x01\x00\x01";
    let fixed = b"\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\xc0\x00\x02\x01";
    for (owner, expected) in [
        (&b"\x03wEb\x07eXAMPLE\x00"[..], &b"\x03Web\x07Example\x00"[..]),
        (b"\x03wEb\xc0\x10", b"\x03Web\xc0\x10"),
        (b"\xc0\x0c", b"\xc0\x0c"),
        // Other names are left as they are.
        (b"\x03nOt\x07eXAMPLE\x00", b"\x03nOt\x07eXAMPLE\x00"),
        (b"\x07eXAMPLE\x00", b"\x07eXAMPLE\x00"),
        (b"\x03wEb\xc0\x0c", b"\x03wEb\xc0\x0c"),
        (b"\x00", b"\x00"),
    ] {
        let header = [0, ID as u8, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
        let packet = [&header[..], question, owner, fixed].concat();
        let client = query(RecordType::A);
        let ReplyKind::Reply(reply) = Reply::classify(&client, ID, &packet) else {
            panic!("{owner:?}");
        };
        assert!(!reply.repeats_case(&client));
        let limit = SizeLimit {
            bytes: 512,
            set_truncate_bit: true,
        };
        let delivered = reply.encode_for(&client, Duration::ZERO, Duration::from_secs(30), limit);
        let expected = [b"\x03Web\x07Example\x00\x00\x01\x00\x01", expected, fixed].concat();
        assert_eq!(delivered[HEADER..], expected, "{owner:?}");
    }
}
