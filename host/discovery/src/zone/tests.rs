#![allow(clippy::unwrap_used, clippy::panic)] // Tests: a failure is their answer.

use std::sync::Arc;

use super::testing::Builder;
use super::{Edit, Found, Record, Value, Zone};
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

#[test]
fn a_change_is_a_new_zone_and_leaves_nothing_behind() {
    let before = zone();
    let record = |name: &str, last: u8| Record {
        name: name.into(),
        value: Value::Address([10, 0, 0, last].into()),
        ttl: 60,
    };
    let mut edit = Edit::of(&before, 100);
    edit.put(&record("deep.in.new.mesos.", 9));
    edit.put(&record("new.mesos.", 9));
    edit.take(&record("web.fw.mesos.", 1));
    let between = edit.done(before.made_from().clone(), 8);
    assert!(matches!(before.find("new.mesos."), Found::Nothing));
    assert!(matches!(between.find("in.new.mesos."), Found::Branch));
    assert!(between.node("web.fw.mesos.").is_some(), "it was put twice");
    assert_eq!((between.records(), between.serial()), (6, 8));

    let mut edit = Edit::of(&between, 100);
    edit.take(&record("web.fw.mesos.", 1));
    edit.take(&record("deep.in.new.mesos.", 9));
    edit.take(&record("deep.in.new.mesos.", 9));
    let after = edit.done(before.made_from().clone(), 9);
    assert!(matches!(after.find("in.new.mesos."), Found::Nothing));
    assert!(matches!(after.find("web.fw.mesos."), Found::Nothing));
    assert!(
        matches!(after.find("fw.mesos."), Found::Branch),
        "a service is below"
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
fn another_time_is_another_zone() {
    let before = zone();
    let record = |last: u8, ttl| Record {
        name: "web.fw.mesos.".into(),
        value: Value::Address([10, 0, 0, last].into()),
        ttl,
    };
    // As a framework's tasks get another time: whatever comes first, each record goes as it was and comes as it is.
    for takes_first in [true, false] {
        let mut edit = Edit::of(&before, 100);
        for _ in 0..2 {
            if takes_first {
                edit.take(&record(1, 60));
            }
            edit.put(&record(1, 30));
            if !takes_first {
                edit.take(&record(1, 60));
            }
        }
        edit.put(&record(2, 30));
        let after = edit.done(before.made_from().clone(), 8);
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
    // The same time again is no news.
    let mut edit = Edit::of(&before, 100);
    edit.put(&record(1, 60));
    assert_eq!(edit.done(before.made_from().clone(), 8).serial(), 7);
}
