#![allow(clippy::unwrap_used, clippy::panic)] // Tests: a failure is their answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{DNSClass, RecordType};

use super::{Answer, Terms, answer};
use crate::Config;
use crate::zone::testing::Builder;
use crate::zone::{Zone, wire_name};

fn zone() -> Zone {
    let mut zone = Builder::new();
    for ip in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        zone.address("web.fw.mesos.", ip.parse().unwrap());
    }
    zone.address("six.fw.mesos.", "2001:db8::1".parse().unwrap());
    zone.address("-dash.fw.mesos.", "10.0.0.4".parse().unwrap());
    zone.address("ns1.mesos.", "127.0.0.1".parse().unwrap());
    let target: Arc<str> = "web.fw.mesos.".into();
    let six: Arc<str> = "six.fw.mesos.".into();
    let long: Arc<str> = format!("{}.mesos.", "x".repeat(64)).into();
    for (target, port) in [
        (&target, 80),
        (&target, 81),
        (&six, 82),
        (&six, 70000),
        (&long, 83),
    ] {
        zone.service("_web._tcp.fw.mesos.", target, port);
    }
    zone.service("_long._tcp.fw.mesos.", &long, 1);
    zone.build(7)
}

fn ask(name: &str, class: DNSClass, kind: RecordType) -> Answer {
    let config = Config::default().checked().unwrap();
    answer(
        &zone(),
        &Terms::new(&config),
        &wire_name(name).unwrap(),
        class,
        kind,
    )
}

fn texts(records: &[hickory_proto::rr::Record]) -> BTreeSet<String> {
    records
        .iter()
        .map(|r| format!("{} {} {} {}", r.name.to_ascii(), r.ttl, r.record_type(), r.data))
        .collect()
}

/// Code, whether authoritative, types in the answer, types in the authority.
fn outline(answer: &Answer) -> (ResponseCode, bool, String, String) {
    let types = |records: &[hickory_proto::rr::Record]| {
        let types: Vec<_> = records
            .iter()
            .map(|record| record.record_type().to_string())
            .collect();
        types.join(" ")
    };
    (
        answer.code,
        answer.authoritative,
        types(&answer.answers),
        types(&answer.authority),
    )
}

#[test]
fn questions_get_the_right_kind_of_answer() {
    use RecordType as T;
    use ResponseCode::{NXDomain, NoError, Refused};
    let cases = [
        ("web.fw.mesos.", T::A, NoError, "A A A", ""),
        ("WEB.Fw.Mesos.", T::A, NoError, "A A A", ""),
        ("web.*.fw.mesos.", T::A, NoError, "A A A", ""),
        ("-dash.fw.mesos.", T::A, NoError, "A", ""),
        ("we\u{0}b.fw.mesos.", T::A, NXDomain, "", "SOA"),
        ("web.fw.mesos.", T::AAAA, NoError, "", "SOA"),
        ("six.fw.mesos.", T::AAAA, NoError, "AAAA", ""),
        ("web.fw.mesos.", T::TXT, NoError, "", "SOA"),
        ("web.fw.mesos.", T::SOA, NoError, "", "SOA"),
        ("web.fw.mesos.", T::DS, NoError, "", "SOA"),
        ("web.fw.mesos.", T::ANY, NoError, "A A A", ""),
        ("six.fw.mesos.", T::ANY, NoError, "AAAA", ""),
        ("_web._tcp.fw.mesos.", T::SRV, NoError, "SRV SRV SRV", ""),
        ("_web._tcp.fw.mesos.", T::ANY, NoError, "SRV SRV SRV", ""),
        ("_web._tcp.fw.mesos.", T::A, NoError, "", "SOA"),
        ("_long._tcp.fw.mesos.", T::SRV, NoError, "", "SOA"),
        ("_tcp.fw.mesos.", T::A, NoError, "", "SOA"),
        ("fw.mesos.", T::ANY, NoError, "", "SOA"),
        ("nope.mesos.", T::A, NXDomain, "", "SOA"),
        ("nope.mesos.", T::SRV, NXDomain, "", "SOA"),
        ("nope.mesos.", T::ANY, NXDomain, "", "SOA"),
        ("mesos.", T::SOA, NoError, "SOA", ""),
        ("mesos.", T::NS, NoError, "NS", ""),
        ("mesos.", T::ANY, NoError, "SOA", ""),
        ("mesos.", T::A, NoError, "", "SOA"),
    ];
    for (name, kind, code, answers, authority) in cases {
        let found = outline(&ask(name, DNSClass::IN, kind));
        assert_eq!(
            found,
            (code, true, answers.to_owned(), authority.to_owned()),
            "{name} {kind}"
        );
    }
    let refused = [
        ("example.com.", DNSClass::IN, T::A),
        ("xmesos.", DNSClass::IN, T::A),
        ("web.fw.mesos.", DNSClass::CH, T::A),
        ("web.fw.mesos.", DNSClass::ANY, T::A),
        ("mesos.", DNSClass::IN, T::AXFR),
        ("mesos.", DNSClass::IN, T::IXFR),
    ];
    for (name, class, kind) in refused {
        let found = outline(&ask(name, class, kind));
        assert_eq!(
            found,
            (Refused, false, String::new(), String::new()),
            "{name} {class} {kind}"
        );
    }
}

#[test]
fn names_come_back_as_they_were_asked() {
    let found = ask("WeB.fw.MESOS.", DNSClass::IN, RecordType::A);
    assert!(
        found
            .answers
            .iter()
            .all(|record| record.name.to_ascii() == "WeB.fw.MESOS."),
        "{found:?}"
    );
    let missing = ask("Nope.MESOS.", DNSClass::IN, RecordType::A);
    let soa = "mesos. 60 SOA ns1.mesos. root.ns1.mesos. 7 60 600 86400 60";
    assert_eq!(
        texts(&missing.authority),
        BTreeSet::from([soa.to_owned()]),
        "the zone owns its SOA"
    );
}

#[test]
fn services_bring_addresses_along() {
    let found = ask("_web._tcp.fw.mesos.", DNSClass::IN, RecordType::SRV);
    let expected = [
        "_web._tcp.fw.mesos. 60 SRV 0 1 80 web.fw.mesos.",
        "_web._tcp.fw.mesos. 60 SRV 0 1 81 web.fw.mesos.",
        "_web._tcp.fw.mesos. 60 SRV 0 1 82 six.fw.mesos.",
    ];
    assert_eq!(texts(&found.answers), expected.map(str::to_owned).into());
    let additional = texts(&found.additional);
    assert_eq!(
        additional.len(),
        2,
        "one address for each of two targets: {additional:?}"
    );
    assert!(
        additional.contains("six.fw.mesos. 60 AAAA 2001:db8::1"),
        "{additional:?}"
    );
}

#[test]
fn the_order_changes() {
    let orders: BTreeSet<_> = (0..200)
        .map(|_| {
            ask("web.fw.mesos.", DNSClass::IN, RecordType::A)
                .answers
                .iter()
                .map(|r| r.data.to_string())
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(orders.len(), 6, "three addresses have six orders");
}

#[test]
fn a_dot_within_a_label_is_no_border() {
    let labels: [&[u8]; 2] = [b"web.fw", b"mesos"];
    let name = hickory_proto::rr::Name::from_labels(labels).unwrap();
    let config = Config::default().checked().unwrap();
    let found = answer(&zone(), &Terms::new(&config), &name, DNSClass::IN, RecordType::A);
    assert_eq!(found.code, ResponseCode::NXDomain);
}
