#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use serde_json::Value;
use transom_cluster::v1::{Resource, TaskState};

use crate::changes::testing::{flat_zone, zone_of as make};
use crate::changes::{self, Changes};
use crate::cluster::operator::Effect;
use crate::cluster::{ClusterModel, Framework, Host, Location, Task, document};
use crate::labels::LabelRule;
use crate::zone::testing::zone_config;
use crate::zone::{Zone, ZoneInputs};
use crate::zone_config::ZoneConfig;

fn zone_of(state: &str, zone_config: &ZoneConfig) -> Zone {
    let cluster = document::read(state.as_bytes()).unwrap().cluster;
    let hosts = HashMap::from([("localhost".to_owned(), vec![IpAddr::from([127, 0, 0, 1])])]);
    make(&cluster, &hosts, zone_config)
}

const FIXTURE: &str = include_str!("../../tests/fixtures/state-fixture.json");
const EDGE: &str = include_str!("../../tests/fixtures/state-edge.json");

/// The frameworks, tasks and records of an enumeration, one line for each.
fn flat(enumeration: &Value) -> BTreeSet<String> {
    let mut records = BTreeSet::new();
    for framework in enumeration["frameworks"].as_array().unwrap() {
        records.insert(format!("{}", framework["name"]));
        for task in framework["tasks"].as_array().unwrap() {
            records.insert(format!("{} {}", framework["name"], task["id"]));
            for record in task["records"].as_array().into_iter().flatten() {
                let (name, host, rtype) = (&record["name"], &record["host"], &record["rtype"]);
                records.insert(format!(
                    "{} {} {name} {rtype} {host}",
                    framework["name"], task["id"]
                ));
            }
        }
    }
    records
}

/// mesos-dns's own answer to `/v1/enumerate` for a recorded state.
fn recorded(cases: &str) -> Value {
    let suite: Value = serde_json::from_str(cases).unwrap();
    let cases = suite["cases"].as_array().unwrap();
    let case = cases
        .iter()
        .find(|case| case["request"]["path"] == "/v1/enumerate")
        .unwrap();
    serde_json::from_str(case["expect"]["body"].as_str().unwrap()).unwrap()
}

/// Checks that all recorded records exist, and that the only others are services on the agent for
/// discovery ports, which the recorded mesos-dns did not have.
fn compare(state: &str, cases: &str, zone_config: &ZoneConfig, absent: &[&str]) {
    let zone = zone_of(state, zone_config);
    let built =
        flat(&serde_json::json!({ "frameworks": crate::enumerate::frameworks(&zone).collect::<Vec<_>>() }));
    let expected = flat(&recorded(cases));
    let missing: Vec<_> = expected
        .difference(&built)
        .filter(|record| !absent.iter().any(|a| record.contains(a)))
        .collect();
    assert!(missing.is_empty(), "missing: {missing:#?}");
    let unexpected: Vec<_> = built
        .difference(&expected)
        .filter(|record| !(record.contains(".slave.mesos.\" \"SRV\"") && record.contains("\"_")))
        .filter(|record| !absent.iter().any(|a| record.contains(a)))
        .collect();
    assert!(unexpected.is_empty(), "not recorded: {unexpected:#?}");
}

#[test]
fn records_match_the_recording() {
    // Two entries of this document share an id, which real masters do not allow; both have
    // records.
    compare(
        FIXTURE,
        include_str!("../../tests/fixtures/cases-http-fixture.json"),
        &zone_config(),
        &[],
    );
}

#[test]
fn records_of_edge_cases_match_the_recording() {
    compare(
        EDGE,
        include_str!("../../tests/fixtures/cases-edge.json"),
        &zone_config(),
        &[],
    );
}

#[test]
fn records_with_short_labels_match_the_recording() {
    let zone_config = ZoneConfig {
        labels: LabelRule::Rfc952,
        ..zone_config()
    };
    compare(
        EDGE,
        include_str!("../../tests/fixtures/cases-edge-rfc952.json"),
        &zone_config,
        &[],
    );
}

fn a(zone: &Zone, name: &str) -> Vec<String> {
    let node = zone.node(name);
    let a = node
        .iter()
        .flat_map(|node| node.a().iter().map(ToString::to_string));
    let aaaa = node
        .iter()
        .flat_map(|node| node.aaaa().iter().map(ToString::to_string));
    let mut all: Vec<_> = a.chain(aaaa).collect();
    all.sort();
    all
}

fn srv(zone: &Zone, name: &str) -> Vec<String> {
    zone.node(name)
        .iter()
        .flat_map(|node| node.srv())
        .map(|srv| format!("{}:{}", srv.target, srv.port))
        .collect()
}

/// Leader, configured masters, and the addresses of `master<n>` and of `master` that mesos-dns was
/// recorded to have.
type Case<'c> = (Option<&'c str>, &'c [&'c str], &'c [&'c str], &'c [&'c str]);

#[test]
fn masters_from_zookeeper_replace_configured_ones() {
    let cluster = ClusterModel {
        leader: Location::from_pid("m@2.2.2.2:5050"),
        masters: vec!["2.2.2.2:5050".into(), "3.3.3.3:5050".into()],
        ..ClusterModel::default()
    };
    let listed = ZoneConfig {
        masters: vec!["1.1.1.1:5050".into()],
        ..zone_config()
    };
    let zone = make(&cluster, &HashMap::new(), &listed);
    let of = |name: &str| a(&zone, &format!("{name}.mesos."));
    assert_eq!(
        (of("master0"), of("master1")),
        (vec!["2.2.2.2".into()], vec!["3.3.3.3".into()])
    );
    assert_eq!(of("master"), ["2.2.2.2", "3.3.3.3"]);
    assert!(of("master2").is_empty());
}

#[test]
fn masters_are_numbered_including_the_leader() {
    let none: &[&str] = &[];
    let cases: [Case<'_>; 8] = [
        (None, &[], &[], none),
        (None, &["1.1.1.1:5050"], &["1.1.1.1"], &["1.1.1.1"]),
        (Some("m@1.1.1.1:5050"), &[], &["1.1.1.1"], &["1.1.1.1"]),
        (
            Some("m@1.1.1.1:5050"),
            &["1.1.1.1:5050"],
            &["1.1.1.1"],
            &["1.1.1.1"],
        ),
        (
            Some("m@1.1.1.1:5050"),
            &["2.2.2.2:5050", "1.1.1.1:5050"],
            &["2.2.2.2", "1.1.1.1"],
            &["1.1.1.1", "2.2.2.2"],
        ),
        (
            Some("m@1.1.1.1:5050"),
            &["2.2.2.2:5050"],
            &["2.2.2.2", "1.1.1.1"],
            &["1.1.1.1", "2.2.2.2"],
        ),
        (
            Some("m@1.1.1.1:5050"),
            &["1.1.1.1:5050", "1.1.1.1:5050"],
            &["1.1.1.1"],
            &["1.1.1.1"],
        ),
        (
            Some("m@[2001:db8::1]:5050"),
            &["[2001:db8::1]:5050", "name:1", "odd"],
            &["2001:db8::1"],
            &["2001:db8::1"],
        ),
    ];
    for (leader, masters, numbered, expected) in cases {
        let cluster = ClusterModel {
            leader: leader.and_then(Location::from_pid),
            ..ClusterModel::default()
        };
        let masters: Vec<_> = masters.iter().map(ToString::to_string).collect();
        let zone = make(
            &cluster,
            &HashMap::new(),
            &ZoneConfig {
                masters: masters.clone(),
                ..zone_config()
            },
        );
        let found: Vec<_> = (0..5)
            .flat_map(|n| a(&zone, &format!("master{n}.mesos.")))
            .collect();
        assert_eq!(found, numbered, "{leader:?} {masters:?}");
        assert_eq!(a(&zone, "master.mesos."), expected, "{leader:?} {masters:?}");
        let leads = usize::from(leader.is_some());
        assert_eq!(a(&zone, "leader.mesos.").len(), leads);
        assert_eq!(
            srv(&zone, "_leader._tcp.mesos."),
            vec!["leader.mesos.:5050"; leads]
        );
        assert_eq!(
            srv(&zone, "_leader._udp.mesos."),
            vec!["leader.mesos.:5050"; leads]
        );
    }
}

#[test]
fn frameworks_agents_and_name_server_have_records() {
    let mut cluster = ClusterModel::default();
    let at = |host: &str, port| Location {
        host: Host::parse(host),
        port,
    };
    for (id, name, endpoint) in [
        ("F1", "a.B", Some(at("10.1.0.1", Some(99)))),
        ("F2", "by name", Some(at("here", None))),
        ("F3", "lost", Some(at("nowhere", None))),
        ("F4", "none", None),
    ] {
        cluster.frameworks.insert(
            id.into(),
            Framework {
                name: name.into(),
                endpoint,
            },
        );
    }
    for (id, agent) in [
        ("S0", at("10.2.0.1", Some(5051))),
        ("S1", at("::ffff:10.2.0.2", Some(5051))),
        ("S2", at("lost", None)),
    ] {
        cluster.agents.insert(id.into(), agent);
    }
    let hosts = HashMap::from([(
        "here".to_owned(),
        vec![[10, 1, 0, 2].into(), "2001:db8::2".parse().unwrap()],
    )]);
    let zone = make(&cluster, &hosts, &zone_config());
    for (name, expected) in [
        ("a.b.mesos.", &["10.1.0.1"][..]),
        ("byname.mesos.", &["10.1.0.2", "2001:db8::2"]),
        ("lost.mesos.", &[]),
        ("none.mesos.", &[]),
        ("slave.mesos.", &["10.2.0.1", "10.2.0.2"]),
        ("ns1.mesos.", &["127.0.0.1"]),
    ] {
        assert_eq!(a(&zone, name), expected, "{name}");
    }
    assert_eq!(srv(&zone, "_framework._tcp.a.b.mesos."), ["a.b.mesos.:99"]);
    assert!(srv(&zone, "_framework._tcp.byname.mesos.").is_empty());
    assert_eq!(srv(&zone, "_slave._tcp.mesos."), ["slave.mesos.:5051"]);
    assert_eq!(
        zone.invalid_entries(),
        1,
        "an agent without an address is omitted and counted"
    );
}

/// A task in the form of the operator stream.
fn wire_task(state: TaskState) -> transom_cluster::v1::Task {
    transom_cluster::v1::Task {
        name: "web".into(),
        task_id: "web.0".into(),
        framework_id: "F".into(),
        agent_id: "c1d2-S0".into(),
        state,
        resources: vec![Resource::ranges("ports", &[(31000, 31000)])],
        ..transom_cluster::v1::Task::default()
    }
}

#[test]
fn task_has_records_only_while_running() {
    use transom_cluster::operator::{Event, TaskUpdated};
    let mut cluster = ClusterModel::default();
    cluster.agents.insert(
        "c1d2-S0".into(),
        Location {
            host: Host::parse("10.0.0.10"),
            port: Some(5051),
        },
    );
    cluster.frameworks.insert(
        "F".into(),
        Framework {
            name: "marathon".into(),
            endpoint: None,
        },
    );
    let update = |state: TaskState| {
        let status = transom_cluster::v1::TaskStatus {
            task_id: "web.0".into(),
            state: state.clone(),
            ..transom_cluster::v1::TaskStatus::default()
        };
        Event::TaskUpdated(TaskUpdated {
            framework_id: "F".into(),
            status,
            state,
        })
    };
    let task_changed = || Effect::Task("F".into(), "web.0".into());
    let mut incremental = make(&cluster, &HashMap::new(), &zone_config());
    let steps = [
        (
            Event::TaskAdded(Box::new(wire_task(TaskState::Staging))),
            task_changed(),
            false,
        ),
        (update(TaskState::Starting), Effect::Unchanged, false),
        (update(TaskState::Running), task_changed(), true),
        (update(TaskState::Running), Effect::Unchanged, true),
        (Event::Heartbeat, Effect::Unchanged, true),
        (update(TaskState::Killing), task_changed(), false),
        (update(TaskState::Running), task_changed(), true),
        (update(TaskState::Killed), task_changed(), false),
        (update(TaskState::Running), Effect::Unchanged, false),
        (
            Event::TaskAdded(Box::new(wire_task(TaskState::Running))),
            task_changed(),
            true,
        ),
        (update(TaskState::Unreachable), task_changed(), false),
    ];
    for (n, (event, effect, runs)) in steps.into_iter().enumerate() {
        assert_eq!(cluster.apply(&event), effect, "step {n}");
        let to = ZoneInputs {
            cluster: cluster.clone(),
            ..incremental.inputs().clone()
        };
        let changes = Changes::between(&incremental.inputs().cluster, &cluster);
        incremental = changes::apply(&incremental, to, changes, 1, 0);
        let zone = make(&cluster, &HashMap::new(), &zone_config());
        assert_eq!(flat_zone(&incremental), flat_zone(&zone), "step {n}");
        let names = [
            "web.marathon.mesos.",
            "web-q9rt1-s0.marathon.mesos.",
            "web.marathon.slave.mesos.",
            "web-q9rt1-s0.marathon.slave.mesos.",
        ];
        for name in names {
            assert_eq!(
                a(&zone, name),
                if runs { vec!["10.0.0.10"] } else { vec![] },
                "step {n}: {name}"
            );
        }
        for name in ["_web._tcp.marathon.mesos.", "_web._udp.marathon.slave.mesos."] {
            let target = "web-q9rt1-s0.marathon.slave.mesos.:31000";
            assert_eq!(
                srv(&zone, name),
                if runs { vec![target] } else { vec![] },
                "step {n}: {name}"
            );
        }
    }
}

#[test]
fn settings_select_tasks_by_health_and_state_and_set_weights() {
    let task = |running, is_staging, healthy| Task {
        name: "web".into(),
        agent: "c1-S0".into(),
        running,
        ports: Box::new([(31000, 31000)]),
        discovery: None,
        addresses: crate::cluster::Addresses::default(),
        is_staging,
        healthy,
        weights: Box::new([("weight".into(), 7)]),
        duplicate_id: None,
    };
    let tasks = [
        task(true, false, None),
        task(true, false, Some(true)),
        task(true, false, Some(false)),
        task(false, true, None),
        task(false, false, None),
    ];
    for (healthy_only, include_staging, expected) in [
        (false, false, [true, true, true, false, false]),
        (true, false, [true, true, false, false, false]),
        (false, true, [true, true, true, true, false]),
    ] {
        let zone_config = ZoneConfig {
            healthy_only,
            include_staging,
            weight_label: include_staging.then(|| "weight".to_owned()),
            framework_ttl: [("marathon".to_owned(), 5)].into(),
            ..zone_config()
        };
        for (task, expected) in tasks.iter().zip(expected) {
            let mut cluster = ClusterModel::default();
            let agent = Location::from_pid("slave(1)@10.0.0.1:5051").unwrap();
            cluster.agents.insert("c1-S0".into(), agent);
            let (name, endpoint) = ("marathon".to_owned(), None);
            cluster
                .frameworks
                .insert("F".into(), Framework { name, endpoint });
            cluster
                .tasks
                .entry("F".into())
                .or_default()
                .insert("web.0".into(), task.clone());
            let zone = make(&cluster, &HashMap::new(), &zone_config);
            let found = zone.node("_web._tcp.marathon.mesos.");
            assert_eq!(
                found.is_some(),
                expected,
                "{healthy_only} {include_staging} {task:?}"
            );
            if let Some(node) = found {
                assert_eq!(
                    (node.ttl(), node.srv()[0].weight),
                    (5, if include_staging { 7 } else { 1 })
                );
            }
        }
    }
}
