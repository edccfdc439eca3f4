#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::sync::Arc;

use super::testing::Builder;
use super::{Record, Value, Zone, ZoneBuilder, ZoneLookup};
use crate::labels::wire_name;

fn zone() -> Zone {
    let mut builder = Builder::new();
    builder.address("web.fw.mesos.", [10, 0, 0, 1].into());
    builder.address("web.fw.mesos.", [10, 0, 0, 1].into());
    builder.address("ns.elsewhere.", [10, 0, 0, 2].into());
    let target: Arc<str> = "web.fw.mesos.".into();
    builder.service("_web._tcp.fw.mesos.", &target, 80);
    builder.service("_web._tcp.fw.mesos.", &target, 70000);
    builder.service("_web._tcp.fw.mesos.", &target, 80);
    builder.build(7)
}

#[test]
fn find_distinguishes_records_empty_non_terminals_and_missing_names() {
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
            ZoneLookup::Node(_) => "node",
            ZoneLookup::EmptyNonTerminal => "branch",
            ZoneLookup::NoSuchName => "nothing",
            ZoneLookup::Outside => "outside",
        };
        assert_eq!(found, expected, "{name}");
    }
    assert!(zone.node("ns.elsewhere.").is_none());
    assert_eq!((zone.records(), zone.serial(), zone.apex()), (4, 7, "mesos."));
}

#[test]
fn wire_name_rejects_names_too_long_for_dns() {
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

#[test]
fn removing_all_records_leaves_an_empty_zone() {
    let before = zone();
    let record = |name: &str, last: u8| Record {
        name: name.into(),
        value: Value::Address([10, 0, 0, last].into()),
        ttl: 60,
    };
    let mut builder = ZoneBuilder::of(&before, 100);
    builder.add(&record("deep.in.new.mesos.", 9));
    builder.add(&record("new.mesos.", 9));
    builder.remove(&record("web.fw.mesos.", 1));
    let between = builder.build(before.inputs().clone(), 8);
    assert!(matches!(before.find("new.mesos."), ZoneLookup::NoSuchName));
    assert!(matches!(
        between.find("in.new.mesos."),
        ZoneLookup::EmptyNonTerminal
    ));
    assert!(between.node("web.fw.mesos.").is_some(), "it was added twice");
    assert_eq!((between.records(), between.serial()), (6, 8));

    let mut builder = ZoneBuilder::of(&between, 100);
    builder.remove(&record("web.fw.mesos.", 1));
    builder.remove(&record("deep.in.new.mesos.", 9));
    builder.remove(&record("deep.in.new.mesos.", 9));
    let after = builder.build(before.inputs().clone(), 9);
    assert!(matches!(after.find("in.new.mesos."), ZoneLookup::NoSuchName));
    assert!(matches!(after.find("web.fw.mesos."), ZoneLookup::NoSuchName));
    assert!(
        matches!(after.find("fw.mesos."), ZoneLookup::EmptyNonTerminal),
        "a service is below it"
    );
    assert!(after.node("new.mesos.").is_some());
    assert_eq!(after.records(), 4);
    let steps: Vec<_> = after.journal().since(7).unwrap().collect();
    assert_eq!(
        steps.iter().map(|step| step.added.len()).collect::<Vec<_>>(),
        [2, 0]
    );
    assert_eq!(
        steps.iter().map(|step| step.removed.len()).collect::<Vec<_>>(),
        [0, 2]
    );
}

#[test]
fn changed_ttl_changes_serial_and_journal() {
    let before = zone();
    let record = |last: u8, ttl| Record {
        name: "web.fw.mesos.".into(),
        value: Value::Address([10, 0, 0, last].into()),
        ttl,
    };
    // The TTL of a framework's tasks changes. In any order of additions and removals, the journal
    // removes each record with the old TTL and adds it with the new one.
    for takes_first in [true, false] {
        let mut builder = ZoneBuilder::of(&before, 100);
        for _ in 0..2 {
            if takes_first {
                builder.remove(&record(1, 60));
            }
            builder.add(&record(1, 30));
            if !takes_first {
                builder.remove(&record(1, 60));
            }
        }
        builder.add(&record(2, 30));
        let after = builder.build(before.inputs().clone(), 8);
        assert_eq!(
            (after.serial(), after.node("web.fw.mesos.").unwrap().ttl()),
            (8, 30)
        );
        assert_eq!(after.records(), 5);
        let steps: Vec<_> = after.journal().since(7).unwrap().collect();
        assert_eq!(steps[0].removed, [record(1, 60)], "{takes_first}");
        let added: std::collections::HashSet<_> = steps[0].added.iter().cloned().collect();
        assert_eq!(added, [record(1, 30), record(2, 30)].into(), "{takes_first}");
        assert_eq!(steps[0].added.len(), 2);
    }
    // Adding a record again with the same TTL changes nothing.
    let mut builder = ZoneBuilder::of(&before, 100);
    builder.add(&record(1, 60));
    assert_eq!(builder.build(before.inputs().clone(), 8).serial(), 7);
}
