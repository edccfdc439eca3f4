#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::collections::BTreeSet;

use hickory_proto::rr::rdata::SOA;

use super::super::wire::Packet;
use super::*;
use crate::zone::ZoneBuilder;
use crate::zone::testing::Builder;

fn settings(networks: &[&str]) -> Settings {
    Settings {
        allow_transfer: networks.iter().map(|net| net.parse().unwrap()).collect(),
        ..Settings::default()
    }
    .checked()
    .unwrap()
}

fn record(name: &str, last: u8) -> zone::Record {
    zone::Record {
        name: name.into(),
        value: Value::Address([10, 0, 0, last].into()),
        ttl: 60,
    }
}

/// A zone with a thousand records at serial 7; serial 8 removes one and adds two.
fn zone() -> Arc<Zone> {
    let mut builder = Builder::new();
    for n in 0..500_u32 {
        let target: Arc<str> = format!("web-{n}.fw.mesos.").into();
        builder.address(&target, IpAddr::V4(n.into()));
        builder.service("_web._tcp.fw.mesos.", &target, 80);
    }
    builder.address("ns1.elsewhere.", [10, 0, 0, 9].into());
    builder.address(&format!("{}.mesos.", "x".repeat(64)), [10, 0, 0, 9].into());
    builder.service("_odd._tcp.fw.mesos.", &"web-1.fw.mesos.".into(), 70000);
    let before = builder.build(7);
    let mut builder = ZoneBuilder::of(&before, 100);
    builder.remove(&zone::Record {
        value: Value::Address([0, 0, 0, 3].into()),
        ..record("web-3.fw.mesos.", 0)
    });
    builder.add(&record("new.mesos.", 1));
    builder.add(&record("new.mesos.", 2));
    builder.add(&record("elsewhere.", 2));
    Arc::new(builder.build(before.inputs().clone(), 8))
}

fn request(apex: &str, kind: RecordType, serial: Option<u32>) -> Message {
    let mut request = Message::new(5, MessageType::Query, OpCode::Query);
    let apex = wire_name(apex).unwrap();
    request.add_query(Query::query(apex.clone(), kind));
    request.authorities = serial
        .map(|serial| {
            let soa = SOA::new(apex.clone(), apex.clone(), serial, 1, 1, 1, 1);
            Record::from_rdata(apex, 0, RData::SOA(soa))
        })
        .into_iter()
        .collect();
    request
}

const ALLOWED_CLIENT: Client = Client {
    ip: IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3)),
    transport: Transport::Tcp,
};

fn transferred(request: &Message, client: Client) -> Option<Vec<Record>> {
    let settings = settings(&["10.0.0.0/8"]);
    let zone_authority = ZoneAuthority::new(&settings);
    let Packet::Request(request) = wire::read(&request.to_vec().unwrap(), client) else {
        panic!("not a request")
    };
    let mut transfer = Transfers::new(&settings).begin(&zone(), &zone_authority, &request, client)?;
    let mut records = Vec::new();
    while let Some(message) = transfer.next() {
        assert!(message.len() < 65536);
        let message = Message::from_vec(&message).unwrap();
        assert!(message.metadata.authoritative && !message.metadata.truncation);
        assert_eq!(message.metadata.id, 5);
        assert_eq!(
            message.queries.is_empty(),
            !records.is_empty(),
            "only the first message has the question"
        );
        records.extend(message.answers);
    }
    Some(records)
}

fn outline(records: &[Record]) -> Vec<String> {
    let of = |record: &Record| match &record.data {
        RData::SOA(soa) => format!("SOA {}", soa.serial),
        data => format!("{} {data}", record.name),
    };
    records.iter().map(of).collect()
}

#[test]
fn axfr_has_the_whole_zone_between_soa_records() {
    for serial in [None, Some(3)] {
        let kind = if serial.is_none() {
            RecordType::AXFR
        } else {
            RecordType::IXFR
        };
        let records = outline(&transferred(&request("Mesos.", kind, serial), ALLOWED_CLIENT).unwrap());
        assert_eq!(records[..2], ["SOA 8", "mesos. ns1.mesos."]);
        assert_eq!(records.last().unwrap(), "SOA 8");
        let inner: BTreeSet<_> = records[2..records.len() - 1].iter().collect();
        assert_eq!(inner.len(), records.len() - 3, "a record is sent twice");
        assert_eq!(inner.len(), 500 + 500 - 1 + 2);
        assert!(
            inner
                .iter()
                .all(|record| record.contains("mesos.") && !record.contains("xxx"))
        );
    }
}

#[test]
fn ixfr_has_the_changes_since_the_serial() {
    let ixfr = |serial| {
        let request = request("mesos.", RecordType::IXFR, Some(serial));
        outline(&transferred(&request, ALLOWED_CLIENT).unwrap())
    };
    let steps = [
        "SOA 8",
        "SOA 7",
        "web-3.fw.mesos. 0.0.0.3",
        "SOA 8",
        "new.mesos. 10.0.0.1",
    ];
    assert_eq!(ixfr(7)[..5], steps);
    assert_eq!(ixfr(7)[5..], ["new.mesos. 10.0.0.2", "SOA 8"]);
    assert_eq!(ixfr(8), ["SOA 8"]);
    let udp = Client {
        transport: Transport::Udp,
        ..ALLOWED_CLIENT
    };
    let request = request("mesos.", RecordType::IXFR, Some(7));
    assert_eq!(outline(&transferred(&request, udp).unwrap()), ["SOA 8"]);
}

#[test]
fn transfer_is_rejected_outside_allowed_networks() {
    let axfr = request("mesos.", RecordType::AXFR, None);
    let outside = Client {
        ip: [11, 0, 0, 1].into(),
        ..ALLOWED_CLIENT
    };
    let udp = Client {
        transport: Transport::Udp,
        ..ALLOWED_CLIENT
    };
    assert!(transferred(&axfr, outside).is_none());
    assert!(transferred(&axfr, udp).is_none());
    assert!(transferred(&request("fw.mesos.", RecordType::AXFR, None), ALLOWED_CLIENT).is_none());
    assert!(transferred(&request("mesos.", RecordType::IXFR, None), ALLOWED_CLIENT).is_none());
}
