#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use super::{Answer, ZoneAuthority, answer};
use crate::Settings;
use crate::labels::wire_name;
use crate::zone::Zone;
use crate::zone::testing::Builder;

fn zone() -> Zone {
    let mut zone = Builder::new();
    for ip in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        zone.address("web.fw.mesos.", ip.parse().unwrap());
    }
    zone.address("six.fw.mesos.", "2001:db8::1".parse().unwrap());
    zone.address("-dash.fw.mesos.", "10.0.0.4".parse().unwrap());
    for ip in ["10.0.0.1", "10.9.0.1", "10.0.0.200"] {
        zone.address("far.fw.mesos.", ip.parse().unwrap());
    }
    for (name, ip) in [
        ("-dash", "10.0.0.4"),
        ("web", "10.0.0.5"),
        ("far", "10.0.0.5"),
        ("six", "2001:db8::1"),
    ] {
        zone.name(&format!("{name}.fw.mesos."), ip.parse().unwrap());
    }
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

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));

fn answer_with(settings: Settings, name: &str, kind: RecordType) -> Option<Answer> {
    let zone_authority = ZoneAuthority::new(&settings.checked().unwrap());
    answer(&zone(), &zone_authority, CLIENT, &wire_name(name).unwrap(), kind)
}

fn ask(name: &str, kind: RecordType) -> Answer {
    answer_with(Settings::default(), name, kind).unwrap()
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
fn answer_depends_on_name_and_type() {
    use RecordType as T;
    use ResponseCode::{NXDomain, NoError};
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
        ("_nope._tcp.fw.mesos.", T::SRV, NXDomain, "", "SOA"),
        ("_http._tcp.web.fw.mesos.", T::SRV, NXDomain, "", "SOA"),
        ("nope.mesos.", T::ANY, NXDomain, "", "SOA"),
        ("mesos.", T::SOA, NoError, "SOA", ""),
        ("mesos.", T::NS, NoError, "NS", ""),
        ("mesos.", T::ANY, NoError, "SOA", ""),
        ("mesos.", T::A, NoError, "", "SOA"),
    ];
    for (name, kind, code, answers, authority) in cases {
        let found = outline(&ask(name, kind));
        assert_eq!(
            found,
            (code, true, answers.to_owned(), authority.to_owned()),
            "{name} {kind}"
        );
    }
    for name in ["example.com.", "xmesos.", "1.0.0.10.in-addr.arpa."] {
        assert!(answer_with(Settings::default(), name, T::A).is_none(), "{name}");
    }
}

#[test]
fn reverse_names_are_answered_with_ptr() {
    use RecordType as T;
    use ResponseCode::{NXDomain, NoError};
    let settings = || Settings {
        reverse_dns_on: true,
        ..Settings::default()
    };
    for (name, kind, code, answers, authority) in [
        ("4.0.0.10.in-addr.arpa.", T::PTR, NoError, "PTR", ""),
        ("4.0.0.10.IN-ADDR.arpa.", T::ANY, NoError, "PTR", ""),
        ("4.0.0.10.in-addr.arpa.", T::A, NoError, "", "SOA"),
        // Two names have this address.
        ("5.0.0.10.in-addr.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("9.9.9.9.in-addr.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("10.in-addr.arpa.", T::PTR, NoError, "", "SOA"),
        ("in-addr.arpa.", T::SOA, NoError, "SOA", ""),
        ("ip6.arpa.", T::PTR, NoError, "", "SOA"),
        ("in-addr.arpa.", T::NS, NoError, "NS", ""),
        ("ip6.arpa.", T::ANY, NoError, "SOA", ""),
        ("0.in-addr.arpa.", T::PTR, NoError, "", "SOA"),
        ("f.ip6.arpa.", T::A, NoError, "", "SOA"),
        // Not the name of an address.
        ("256.0.0.10.in-addr.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("04.0.0.10.in-addr.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("+4.0.0.10.in-addr.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("web.in-addr.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("x.4.0.0.10.in-addr.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("1.4.0.0.10.in-addr.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("g.ip6.arpa.", T::PTR, NXDomain, "", "SOA"),
        ("10.ip6.arpa.", T::PTR, NXDomain, "", "SOA"),
    ] {
        let found = outline(&answer_with(settings(), name, kind).unwrap());
        let expected = (code, true, answers.to_owned(), authority.to_owned());
        assert_eq!(found, expected, "{name} {kind}");
    }
    let six = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
    let found = answer_with(settings(), six, T::PTR).unwrap();
    assert_eq!(found.answers[0].data.to_string(), "six.fw.mesos.");
    let longer = outline(&answer_with(settings(), &format!("1.{six}"), T::PTR).unwrap());
    assert_eq!(longer.0, NXDomain);
    assert!(answer_with(settings(), "arpa.", T::PTR).is_none());
    assert!(answer_with(settings(), "xin-addr.arpa.", T::PTR).is_none());
}

#[test]
fn addresses_in_the_clients_subnet_come_first() {
    for near in [true, false] {
        let firsts: BTreeSet<_> = (0..100)
            .map(|_| {
                let settings = Settings {
                    resolv_subnet_first: near,
                    ..Settings::default()
                };
                let found = answer_with(settings, "far.fw.mesos.", RecordType::A).unwrap();
                assert_eq!(found.answers.len(), 3);
                found.answers[0].data.to_string()
            })
            .collect();
        assert_eq!(firsts.len(), if near { 2 } else { 3 }, "{firsts:?}");
    }
}

#[test]
fn answers_keep_the_case_of_the_query() {
    let found = ask("WeB.fw.MESOS.", RecordType::A);
    assert!(
        found
            .answers
            .iter()
            .all(|record| record.name.to_ascii() == "WeB.fw.MESOS."),
        "{found:?}"
    );
    let missing = ask("Nope.MESOS.", RecordType::A);
    let soa = "mesos. 60 SOA ns1.mesos. root.ns1.mesos. 7 60 600 86400 60";
    assert_eq!(
        texts(&missing.authority),
        BTreeSet::from([soa.to_owned()]),
        "the zone owns its SOA"
    );
}

#[test]
fn srv_answers_have_additional_addresses() {
    let found = ask("_web._tcp.fw.mesos.", RecordType::SRV);
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
fn answers_are_shuffled() {
    let orders: BTreeSet<_> = (0..200)
        .map(|_| {
            ask("web.fw.mesos.", RecordType::A)
                .answers
                .iter()
                .map(|r| r.data.to_string())
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(orders.len(), 6, "three addresses have six orders");
}

#[test]
fn dot_inside_a_label_matches_no_name() {
    let labels: [&[u8]; 2] = [b"web.fw", b"mesos"];
    let name = hickory_proto::rr::Name::from_labels(labels).unwrap();
    let settings = Settings::default().checked().unwrap();
    let found = answer(
        &zone(),
        &ZoneAuthority::new(&settings),
        CLIENT,
        &name,
        RecordType::A,
    )
    .unwrap();
    assert_eq!(found.code, ResponseCode::NXDomain);
}
