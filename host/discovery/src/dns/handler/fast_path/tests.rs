#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::collections::BTreeSet;
use std::sync::Arc;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::Settings;
use crate::dns::Handler;
use crate::dns::fuzzing::{assert_same_answer, handler, record_set, zone};
use crate::dns::respond::{Client, Reply};
use crate::labels::wire_name;
use crate::zone::testing::Builder;
use crate::zone::{Service, Value, ZoneBuilder};

fn client(transport: Transport) -> Client {
    let ip = [10, 0, 0, 1].into();
    Client { ip, transport }
}

fn answer_any(handler: &Handler, zone: &Arc<Zone>, packet: &[u8], transport: Transport) -> Vec<u8> {
    let mut answer = Vec::new();
    match handler.reply_without_fast_path(Some(zone), packet, client(transport), &mut answer) {
        Reply::Written => answer,
        other => panic!("{other:?}"),
    }
}

fn query(name: &Name, kind: RecordType, edns: Option<u16>, random: &mut StdRng) -> Vec<u8> {
    let mut query = Message::new(random.random(), MessageType::Query, OpCode::Query);
    query.metadata.recursion_desired = random.random();
    query.metadata.checking_disabled = random.random();
    query.add_query(Query::query(name.clone(), kind));
    query.edns = edns.map(|size| {
        let mut edns = Edns::new();
        edns.set_max_payload(size);
        edns.set_dnssec_ok(random.random());
        edns
    });
    query.to_vec().unwrap()
}

#[test]
fn fast_path_answers_like_the_handler() {
    let names = [
        "many.fw.mesos.",
        "MANY.fw.Mesos.",
        "web-3-s0.fw.slave.mesos.",
        "_web._tcp.fw.mesos.",
        "_few._tcp.fw.mesos.",
        "_odd._tcp.fw.mesos.",
        "_huge._tcp.fw.mesos.",
        "_tcp.fw.mesos.",
        "missing.fw.mesos.",
        "fw.mesos.",
    ];
    let zone = zone();
    let mut random = StdRng::seed_from_u64(1);
    for recurse_on in [true, false] {
        let handler = handler(Settings {
            recurse_on,
            ..Settings::default()
        });
        for name in names {
            for kind in [RecordType::A, RecordType::AAAA, RecordType::SRV] {
                for edns in [None, Some(0), Some(512), Some(1000), Some(1232), Some(65535)] {
                    for transport in [Transport::Udp, Transport::Tcp] {
                        let packet = query(&wire_name(name).unwrap(), kind, edns, &mut random);
                        let question = Question::read(&packet).unwrap();
                        let mut fast = b"before".to_vec();
                        question
                            .answer(&zone, &handler.template, transport, &mut fast)
                            .unwrap();
                        let fast = fast.strip_prefix(b"before").unwrap();
                        let full = answer_any(&handler, &zone, &packet, transport);
                        println!("{name} {kind} {edns:?} {transport:?}");
                        assert_same_answer(fast, &full);
                        let limit = match transport {
                            Transport::Udp => usize::from(edns.unwrap_or(512).clamp(512, 1232)),
                            Transport::Tcp => 65535,
                        };
                        assert!(fast.len() <= limit, "{name} {kind}: {}", fast.len());
                    }
                }
            }
        }
    }
}

#[test]
fn fast_path_declines_uncommon_queries() {
    let mut random = StdRng::seed_from_u64(2);
    let web = wire_name("web.mesos.").unwrap();
    let plain = query(&web, RecordType::A, None, &mut random);
    assert!(Question::read(&plain).is_some());
    for kind in [
        RecordType::ANY,
        RecordType::SOA,
        RecordType::NS,
        RecordType::AXFR,
        RecordType::PTR,
    ] {
        assert!(
            Question::read(&query(&web, kind, None, &mut random)).is_none(),
            "{kind}"
        );
    }
    for (at, byte) in [
        (2, 0x80),
        (2, 0x10),
        (2, 0x02),
        (3, 0x80),
        (5, 2),
        (5, 0),
        (7, 1),
        (9, 1),
        (11, 1),
    ] {
        let mut changed = plain.clone();
        changed[at] = byte;
        assert!(Question::read(&changed).is_none(), "{byte} at {at}");
    }
    for name in ["web.*.mesos.", "*.mesos.", "we b.mesos."] {
        let packet = query(&wire_name(name).unwrap(), RecordType::A, None, &mut random);
        assert!(Question::read(&packet).is_none(), "{name}");
    }
    for size in 0..plain.len() {
        assert!(Question::read(&plain[..size]).is_none(), "{size}");
    }
    assert!(Question::read(&[&plain[..], &[0]].concat()).is_none());
    // Names that are not below the apex.
    let (zone, handler) = (zone(), handler(Settings::default()));
    for name in ["mesos.", "xmesos.", "example.org.", "."] {
        let name = Name::from_ascii(name).unwrap();
        let packet = query(&name, RecordType::A, None, &mut random);
        let question = Question::read(&packet).unwrap();
        let mut out = Vec::new();
        assert_eq!(
            question.answer(&zone, &handler.template, Transport::Udp, &mut out),
            None,
            "{name}"
        );
        assert!(out.is_empty());
    }
}

#[test]
fn fast_path_survives_any_packet_within_size_limits() {
    let (zone, handler) = (zone(), handler(Settings::default()));
    let mut random = StdRng::seed_from_u64(3);
    let names = ["many.fw.mesos.", "_huge._tcp.fw.mesos.", "web.*.mesos.", "mesos."];
    for round in 0..50_000 {
        let name = wire_name(names[round % names.len()]).unwrap();
        let kind =
            [RecordType::A, RecordType::SRV, RecordType::ANY, RecordType::SOA][random.random_range(0..4)];
        let mut packet = query(&name, kind, Some(random.random()), &mut random);
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..packet.len());
            packet[at] = random.random();
        }
        if random.random_ratio(1, 4) {
            packet.truncate(random.random_range(0..=packet.len()));
        }
        if random.random_ratio(1, 10) {
            packet.extend((0..random.random_range(0..600)).map(|_| random.random::<u8>()));
        }
        let mut out = Vec::new();
        let reply = handler.reply(Some(&zone), &packet, client(Transport::Udp), &mut out);
        if matches!(reply, Reply::Written) {
            assert!((12..=1232).contains(&out.len()), "{packet:?}");
            assert_eq!(out[..2], packet[..2], "the id");
            assert!(out[2] & 0x80 != 0, "a response");
            assert_ne!(
                Message::from_vec(&out).unwrap().metadata.response_code,
                ResponseCode::BADVERS
            );
        }
    }
}

/// The answers to an SRV query in their order, each with the additional addresses of its target:
/// `port target: address TTL`.
fn services(zone: &Zone, template: &AnswerTemplate, packet: &[u8]) -> Vec<String> {
    let mut out = Vec::new();
    let question = Question::read(packet).unwrap();
    question.answer(zone, template, Transport::Tcp, &mut out).unwrap();
    let message = Message::from_vec(&out).unwrap();
    let answers = message.answers.iter().map(|record| {
        let RData::SRV(srv) = &record.data else {
            panic!("{record:?}");
        };
        let of_target = message.additionals.iter().filter(|it| it.name == srv.target);
        let ips: Vec<_> = of_target.map(|it| format!("{} {}", it.data, it.ttl)).collect();
        format!("{} {}: {}", srv.port, srv.target, ips.join(", "))
    });
    answers.collect()
}

#[test]
fn srv_answers_have_target_addresses_in_any_rotation() {
    let (handler, mut random) = (handler(Settings::default()), StdRng::seed_from_u64(6));
    let mut builder = Builder::new();
    let name = "_web._tcp.fw.mesos.";
    for n in 0..5_u8 {
        // Target names of different lengths.
        let target: Arc<str> = format!("web{}.fw.mesos.", "x".repeat(n.into())).into();
        builder.service(name, &target, 100 + u32::from(n));
        builder.address(&target, [10, 0, 0, n].into());
        if n == 2 {
            builder.address(&target, "2001:db8::2".parse().unwrap());
            builder.service(name, &target, 70000);
            builder.service(name, &target, 200);
        }
    }
    let zone = builder.build(1);
    let packet = query(&wire_name(name).unwrap(), RecordType::SRV, None, &mut random);
    let expected: BTreeSet<String> = [
        "100 web.fw.mesos.: 10.0.0.0 60",
        "101 webx.fw.mesos.: 10.0.0.1 60",
        "102 webxx.fw.mesos.: 10.0.0.2 60, 2001:db8::2 60",
        "200 webxx.fw.mesos.: 10.0.0.2 60, 2001:db8::2 60",
        "103 webxxx.fw.mesos.: 10.0.0.3 60",
        "104 webxxxx.fw.mesos.: 10.0.0.4 60",
    ]
    .map(Into::into)
    .into();
    let mut firsts = BTreeSet::new();
    for _ in 0..200 {
        let found = services(&zone, &handler.template, &packet);
        firsts.insert(found[0].clone());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    assert_eq!(firsts, expected);
}

#[test]
fn srv_answers_follow_changes_of_services_and_targets() {
    let (handler, mut random) = (handler(Settings::default()), StdRng::seed_from_u64(7));
    let name = "_web._tcp.fw.mesos.";
    let packet = query(&wire_name(name).unwrap(), RecordType::SRV, None, &mut random);
    let record = |name: &str, value: Value, ttl| crate::zone::Record {
        name: name.into(),
        value,
        ttl,
    };
    let address = |name: &str, last, ttl| record(name, Value::Address([10, 0, 0, last].into()), ttl);
    let service = |target: &str, port, ttl| {
        let target = target.into();
        record(
            name,
            Value::Service(Service {
                target,
                port,
                weight: 1,
            }),
            ttl,
        )
    };
    let (a, b) = ("a.fw.mesos.", "b.fw.mesos.");
    let mut zone = Builder::new().build(1);
    // (removed records, added records, expected answers)
    let steps = [
        (
            vec![],
            vec![address(a, 1, 60), service(a, 1, 60), service(b, 2, 60)],
            ["1 a.fw.mesos.: 10.0.0.1 60", "2 b.fw.mesos.: "],
        ),
        (
            vec![],
            vec![address(b, 2, 60)],
            ["1 a.fw.mesos.: 10.0.0.1 60", "2 b.fw.mesos.: 10.0.0.2 60"],
        ),
        (
            vec![address(a, 1, 60)],
            vec![address(a, 3, 60)],
            ["1 a.fw.mesos.: 10.0.0.3 60", "2 b.fw.mesos.: 10.0.0.2 60"],
        ),
        (
            vec![address(b, 2, 60)],
            vec![address(b, 2, 30)],
            ["1 a.fw.mesos.: 10.0.0.3 60", "2 b.fw.mesos.: 10.0.0.2 30"],
        ),
        (
            vec![service(a, 1, 60)],
            vec![service(a, 9, 60)],
            ["2 b.fw.mesos.: 10.0.0.2 30", "9 a.fw.mesos.: 10.0.0.3 60"],
        ),
        (
            vec![address(a, 3, 60)],
            vec![],
            ["2 b.fw.mesos.: 10.0.0.2 30", "9 a.fw.mesos.: "],
        ),
    ];
    for (serial, (goes, comes, expected)) in (2..).zip(steps) {
        let before = zone.clone();
        let was = services(&before, &handler.template, &packet);
        let mut builder = ZoneBuilder::of(&zone, 0);
        for record in &goes {
            builder.remove(record);
        }
        for record in &comes {
            builder.add(record);
        }
        zone = builder.build(zone.inputs().clone(), serial);
        for _ in 0..3 {
            let mut found = services(&zone, &handler.template, &packet);
            found.sort();
            assert_eq!(found, expected);
            // The previous zone, which readers may still hold, answers as before.
            let mut still = services(&before, &handler.template, &packet);
            still.sort();
            let mut was = was.clone();
            was.sort();
            assert_eq!(still, was);
        }
    }
}

#[test]
fn answers_are_rotated() {
    let (zone, handler) = (zone(), handler(Settings::default()));
    let mut random = StdRng::seed_from_u64(4);
    let packet = query(
        &wire_name("many.fw.mesos.").unwrap(),
        RecordType::A,
        None,
        &mut random,
    );
    let question = Question::read(&packet).unwrap();
    let firsts: BTreeSet<String> = (0..400)
        .map(|_| {
            let mut out = Vec::new();
            question
                .answer(&zone, &handler.template, Transport::Udp, &mut out)
                .unwrap();
            Message::from_vec(&out).unwrap().answers[0].data.to_string()
        })
        .collect();
    assert!(firsts.len() > 100, "{}", firsts.len());
}

#[test]
fn truncation_flag_can_be_turned_off() {
    let (zone, mut random) = (zone(), StdRng::seed_from_u64(5));
    let packet = query(
        &wire_name("many.fw.mesos.").unwrap(),
        RecordType::A,
        None,
        &mut random,
    );
    for set_truncate_bit in [true, false] {
        let handler = handler(Settings {
            set_truncate_bit,
            ..Settings::default()
        });
        let mut fast = Vec::new();
        let reply = handler.reply(Some(&zone), &packet, client(Transport::Udp), &mut fast);
        assert!(matches!(reply, Reply::Written));
        let full = answer_any(&handler, &zone, &packet, Transport::Udp);
        for answer in [fast, full] {
            assert_eq!(answer[2] & 2 != 0, set_truncate_bit);
        }
    }
}

#[test]
fn every_target_has_addresses_over_tcp() {
    let mut zone = Builder::new();
    // In the longer list the last targets are beyond the reach of compression pointers.
    let names = [("_some._tcp.fw.mesos.", 65_u32), ("_lots._tcp.fw.mesos.", 700)];
    for (name, targets) in names {
        for n in 0..targets {
            let target: Arc<str> = format!("t{n}.fw.mesos.").into();
            zone.service(name, &target, 80);
            if name.starts_with("_lots") {
                zone.address(&target, (n + 1).to_be_bytes().into());
            }
        }
    }
    let (zone, handler) = (Arc::new(zone.build(7)), handler(Settings::default()));
    let mut random = StdRng::seed_from_u64(6);
    for (name, targets) in names {
        let packet = query(&wire_name(name).unwrap(), RecordType::SRV, None, &mut random);
        let mut out = Vec::new();
        let reply = handler.reply(Some(&zone), &packet, client(Transport::Tcp), &mut out);
        assert!(matches!(reply, Reply::Written));
        let answer = Message::from_vec(&out).unwrap();
        let found = (answer.answers.len(), record_set(&answer.additionals).len());
        assert_eq!(found, (targets as usize, targets as usize));
        assert!(!answer.metadata.truncation);
        assert_same_answer(&out, &answer_any(&handler, &zone, &packet, Transport::Tcp));
    }
}
