#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use hickory_proto::op::{MessageType, OpCode};
use hickory_proto::rr::{DNSClass, Name};
use prometheus_client::registry::Registry;

use super::*;
use crate::zone::testing::Builder;

fn handler() -> Handler {
    let shared = Arc::new(Shared::new());
    let metrics = Metrics::register(&mut Registry::default(), &shared);
    {
        let settings = Settings {
            external_on: false,
            ..Settings::default()
        };
        let forwarding = forward::Metrics::register(&mut Registry::default());
        Handler::new(&settings.checked().unwrap(), shared, metrics, forwarding)
    }
}

fn code(handler: &Handler, zone: Option<&Arc<Zone>>, query: &Message) -> ResponseCode {
    let client = Client {
        ip: [10, 0, 0, 1].into(),
        transport: Transport::Tcp,
    };
    let mut out = Vec::new();
    let reply = handler.reply(zone, &query.to_vec().unwrap(), client, &mut out);
    assert!(matches!(reply, Reply::Written), "{reply:?}");
    let answer = Message::from_vec(&out).unwrap();
    assert_eq!(answer.queries, query.queries);
    answer.metadata.response_code
}

#[test]
fn handler_rejects_other_opcodes_and_classes() {
    use DNSClass::{ANY, CH, HS, IN, NONE};
    use RecordType as T;
    use ResponseCode::{NXDomain, NotImp, Refused, ServFail};

    let handler = handler();
    let zone = Arc::new(Builder::new().build(7));
    let query = |class, kind, op_code| {
        let mut query = Message::new(1, MessageType::Query, op_code);
        let mut question = Query::query(Name::from_ascii("web.mesos.").unwrap(), kind);
        question.set_query_class(class);
        query.add_query(question);
        query
    };
    for (class, kind, op_code, expected) in [
        (IN, T::A, OpCode::Query, NXDomain),
        (CH, T::A, OpCode::Query, Refused),
        (HS, T::A, OpCode::Query, Refused),
        (ANY, T::A, OpCode::Query, Refused),
        (NONE, T::A, OpCode::Query, Refused),
        (IN, T::AXFR, OpCode::Query, Refused),
        (IN, T::SOA, OpCode::Notify, Refused),
        (IN, T::SOA, OpCode::Update, Refused),
        (IN, T::A, OpCode::Status, NotImp),
        (IN, T::A, OpCode::Unknown(15), NotImp),
    ] {
        let query = query(class, kind, op_code);
        assert_eq!(
            code(&handler, Some(&zone), &query),
            expected,
            "{class} {kind} {op_code:?}"
        );
    }
    let early = query(IN, T::A, OpCode::Query);
    assert_eq!(code(&handler, None, &early), ServFail, "before the first zone");
}

/// The answer to an SOA query, by the handler of hickory-server.
fn soa(question: &[u8]) -> Vec<u8> {
    let header = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let (zone, mut out) = (Arc::new(Builder::new().build(7)), Vec::new());
    let client = Client::new([10, 0, 0, 1].into(), Transport::Udp);
    let packet = [&header[..], question, &[0, 6, 0, 1]].concat();
    let reply = handler().reply_without_fast_path(Some(&zone), &packet, client, &mut out);
    assert!(matches!(reply, Reply::Written), "{reply:?}");
    out
}

#[test]
fn answer_repeats_the_question_and_points_to_its_name() {
    let answer = soa(b"\x05MESOS\x00");
    assert_eq!(answer[12..23], *b"\x05MESOS\x00\x00\x06\x00\x01");
    // The owner of the record points to the question's name.
    assert_eq!(answer[23..25], [0xc0, 12]);
    assert_eq!(Message::from_vec(&answer).unwrap().answers.len(), 1);
}

#[test]
fn question_that_points_into_the_header_is_written_out() {
    // A pointer to the flags, which the response changes. Their 0 is the root label.
    let answer = soa(b"\xc0\x02");
    assert_eq!(answer[12..17], [0, 0, 6, 0, 1]);
    assert_eq!(
        Message::from_vec(&answer).unwrap().queries[0].name(),
        &Name::root()
    );
    // The label before the pointer stays, and the pointer is resolved.
    let answer = soa(b"\x05mesos\xc0\x02");
    assert_eq!(answer[12..23], *b"\x05mesos\x00\x00\x06\x00\x01");
}
