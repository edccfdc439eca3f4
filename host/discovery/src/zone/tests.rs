#![allow(clippy::unwrap_used, clippy::panic)] // Tests: a failure is their answer.

use std::sync::Arc;

use super::{Builder, Found, Zone, wire_name};

fn zone() -> Zone {
    let mut builder = Builder::new();
    assert!(builder.address("web.fw.mesos.", [10, 0, 0, 1].into()));
    assert!(!builder.address("web.fw.mesos.", [10, 0, 0, 1].into()));
    assert!(builder.address("ns.elsewhere.", [10, 0, 0, 2].into()));
    let target: Arc<str> = "web.fw.mesos.".into();
    assert!(builder.service("_web._tcp.fw.mesos.", &target, 80));
    assert!(builder.service("_web._tcp.fw.mesos.", &target, 70000));
    assert!(!builder.service("_web._tcp.fw.mesos.", &target, 80));
    builder.build("mesos", 7)
}

#[test]
fn tells_records_branches_and_nothing_apart() {
    let zone = zone();
    let cases = [
        ("web.fw.mesos.", "node"),
        ("_web._tcp.fw.mesos.", "node"),
        ("_tcp.fw.mesos.", "branch"),
        ("fw.mesos.", "branch"),
        ("mesos.", "branch"),
        ("x.web.fw.mesos.", "nothing"),
        ("w.mesos.", "nothing"),
        (".mesos.", "nothing"),
        ("ns.elsewhere.", "outside"),
        ("xmesos.", "outside"),
        (".", "outside"),
        ("", "outside"),
        ("mesos", "outside"),
    ];
    for (name, expected) in cases {
        let found = match zone.find(name) {
            Found::Node(_) => "node",
            Found::Branch => "branch",
            Found::Nothing => "nothing",
            Found::Outside => "outside",
        };
        assert_eq!(found, expected, "{name}");
    }
    assert!(zone.node("ns.elsewhere.").is_none());
    assert_eq!((zone.records(), zone.serial(), zone.apex()), (4, 7, "mesos."));
}

#[test]
fn names_that_dns_cannot_carry_have_no_wire_form() {
    let long = "x".repeat(63);
    for (name, carried) in [
        ("-odd_.mesos.".to_owned(), true),
        (format!("{long}.mesos."), true),
        (format!("{long}x.mesos."), false),
        (format!("{long}.{long}.{long}.{long}."), false),
        ("a..b.".to_owned(), false),
        ("mesos".to_owned(), false),
        (".".to_owned(), false),
    ] {
        assert_eq!(wire_name(&name).is_some(), carried, "{name}");
    }
}
