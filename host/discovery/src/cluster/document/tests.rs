#![allow(clippy::unwrap_used)] // Tests fail by panicking.

use serde_json::{Value, json};

use super::*;

fn cluster(document: &Value) -> ClusterModel {
    read(document.to_string().as_bytes()).unwrap().cluster
}

#[test]
fn port_ranges_match_mesos_dns() {
    let tables: Value = serde_json::from_str(include_str!("../../../tests/fixtures/tables.json")).unwrap();
    for row in tables["port_ranges"].as_array().unwrap() {
        let ranges = port_ranges(row["In"].as_str().unwrap());
        // Inputs on which mesos-dns panics have no expected result.
        if row["Panics"] == false {
            let ports: Vec<_> = ranges
                .iter()
                .flat_map(|(first, last)| *first..=*last)
                .map(|port| port.to_string())
                .collect();
            assert_eq!(json!(ports), row["Out"], "{row}");
        }
    }
}

/// One valid entry of each kind, with invalid ones next to it.
#[test]
fn invalid_entries_are_skipped_alone() {
    let good_agent = json!({"id": "a-S0", "pid": "slave(1)@10.0.0.1:5051"});
    let good_task = json!({"id": "t", "name": "web", "slave_id": "a-S0", "state": "TASK_RUNNING",
        "resources": {"ports": "[1-2]"}});
    let good_framework = json!({"id": "F", "name": "marathon", "tasks": [good_task]});
    let agents = [
        json!(null),
        json!(7),
        json!({"id": 5}),
        json!({"pid": "slave(1)@10.0.0.1:5051"}),
        json!({"id": "b"}),
        json!({"id": "b", "pid": "garbage"}),
        json!({"id": "b", "pid": "a@b"}),
    ];
    for invalid in &agents {
        let found = cluster(&json!({"slaves": [invalid, good_agent], "frameworks": [good_framework]}));
        assert_eq!(
            (found.agents.len(), found.frameworks.len(), found.invalid_entries),
            (1, 1, 1),
            "{invalid}"
        );
    }
    for invalid in [
        json!(null),
        json!([]),
        json!({"id": "G", "name": 5}),
        json!({"id": "G", "tasks": {}}),
    ] {
        let found = cluster(&json!({"slaves": [good_agent], "frameworks": [invalid, good_framework]}));
        assert_eq!(
            (found.frameworks.len(), found.invalid_entries),
            (1, 1),
            "{invalid}"
        );
    }
    for invalid in [
        json!("task"),
        json!({"id": "u", "state": 3}),
        json!({"id": "u", "state": "TASK_RUNNING", "resources": {"ports": 5}}),
    ] {
        let framework = json!({"id": "F", "name": "marathon", "tasks": [invalid, good_task]});
        let found = cluster(&json!({"slaves": [good_agent], "frameworks": [framework]}));
        assert_eq!(
            (found.tasks[&FrameworkId::from("F")].len(), found.invalid_entries),
            (1, 1),
            "{invalid}"
        );
    }
    // An invalid entry within a task is counted, and the task is kept.
    for (key, invalid) in [
        (
            "statuses",
            json!([{"state": 5}, {"state": "TASK_RUNNING", "timestamp": 1.0,
            "labels": [{"key": "Docker.NetworkSettings.IPAddress", "value": "10.9.9.9"}]}]),
        ),
        ("labels", json!([{"value": "no key"}])),
        (
            "discovery",
            json!({"name": "d", "ports": {"ports": [{"number": -1}, {"number": 70000}]}}),
        ),
    ] {
        let mut task = good_task.clone();
        task[key] = invalid;
        let found = cluster(&json!({"frameworks": [{"id": "F", "tasks": [task]}]}));
        assert_eq!(
            (found.tasks[&FrameworkId::from("F")].len(), found.invalid_entries),
            (1, 1),
            "{key}"
        );
    }
}

#[test]
fn read_accepts_missing_lists_and_rejects_other_types() {
    for document in [
        json!({}),
        json!({"slaves": null, "frameworks": null}),
        json!({"frameworks": [{"tasks": null}]}),
    ] {
        assert_eq!(cluster(&document).invalid_entries, 0, "{document}");
    }
    for document in [
        &br#"{"slaves": {}}"#[..],
        br#"{"leader": "#,
        b"",
        b"[]",
        b"null",
        br#"{"leader": 5}"#,
    ] {
        assert!(read(document).is_err(), "{document:?}");
    }
}

#[test]
fn agents_without_process_id_use_their_host_name() {
    let found = cluster(&json!({"slaves": [
        {"id": "a", "hostname": "10.0.0.1", "port": 5051}, {"id": "b", "hostname": "node"}]}));
    let endpoint = |host, port| Location { host, port };
    let expected = [
        endpoint(Host::Ip([10, 0, 0, 1].into()), Some(5051)),
        endpoint(Host::Name("node".into()), None),
    ];
    assert!(found.agents.iter().map(|(_, endpoint)| endpoint).eq(&expected));
}

#[test]
fn duplicate_ids_keep_all_entries() {
    let task = |name| json!({"id": "t", "name": name, "slave_id": "a", "state": "TASK_RUNNING"});
    let found = cluster(&json!({"frameworks": [
        {"name": "one", "tasks": [task("a"), task("b")]}, {"name": "two", "tasks": [task("c")]}]}));
    let mut names = Vec::new();
    for (id, framework) in found.frameworks.iter() {
        let tasks = found.tasks[id]
            .iter()
            .map(|(_, task)| format!("{}.{}", task.name, framework.name));
        names.extend(tasks);
    }
    assert_eq!(names, ["a.one", "b.one", "c.two"]);
    let one = &found.tasks[&FrameworkId::from("")];
    assert!(
        one.iter()
            .all(|(known_by, task)| task.id(known_by).as_str() == "t")
    );
}

#[test]
fn names_may_be_invalid_utf8() {
    let document = b"{\"frameworks\": [{\"name\": \"a\xff\xfeb\"}]}";
    let found = read(document).unwrap().cluster;
    let (_, framework) = found.frameworks.iter().next().unwrap();
    assert_eq!(framework.name, "a\u{fffd}\u{fffd}b");
}

#[test]
fn read_keeps_health_and_weights() {
    let status = |timestamp: f64, healthy: Value| json!({"state": "TASK_RUNNING", "timestamp": timestamp, "healthy": healthy});
    let of = |statuses: Value| {
        let labels = json!([{"key": "weight", "value": "7"}, {"key": "x", "value": "70000"}, {"key": "y"}]);
        let task = json!({"id": "t", "state": "TASK_RUNNING", "labels": labels, "statuses": statuses});
        let found = cluster(&json!({"frameworks": [{"id": "F", "tasks": [task]}]}));
        let task = found.tasks[&FrameworkId::from("F")]
            .get(&TaskId::from("t"))
            .cloned();
        task.unwrap()
    };
    let task = of(json!([
        status(2.0, json!(false)),
        status(1.0, json!(true)),
        status(3.0, json!(null))
    ]));
    assert_eq!(task.healthy, Some(false));
    assert_eq!(
        (task.weight("weight"), task.weight("x"), task.weight("y")),
        (Some(7), None, None)
    );
    assert_eq!(of(json!([])).healthy, None);
}

#[test]
fn null_entries_do_not_hide_other_entries() {
    let addresses = json!([null, {"ip_address": null}, {"ip_address": "10.9.9.9"}]);
    let status = json!({"state": "TASK_RUNNING", "timestamp": 1.0,
        "labels": [null, {"value": "no key"}, {"key": "Docker.NetworkSettings.IPAddress"},
            {"key": "Docker.NetworkSettings.IPAddress", "value": "10.8.8.8"}],
        "container_status": {"network_infos": [null, {"ip_addresses": null}, {"ip_addresses": addresses},
            {"ip_addresses": [], "ip_address": "10.7.7.7"}]}});
    for (statuses, docker, netinfo) in [
        (json!([status]), &["10.8.8.8"][..], &["10.9.9.9", "10.7.7.7"][..]),
        (
            json!([{"state": "TASK_RUNNING", "timestamp": 1.0, "labels": null, "container_status": null}]),
            &[],
            &[],
        ),
        (
            json!([{"state": "TASK_RUNNING", "timestamp": 1.0, "container_status": {}}]),
            &[],
            &[],
        ),
    ] {
        let task = json!({"id": "t", "state": "TASK_RUNNING", "statuses": statuses});
        let found = cluster(&json!({"frameworks": [{"id": "F", "tasks": [task]}]}));
        let task = found.tasks[&FrameworkId::from("F")].get(&TaskId::from("t"));
        let addresses = &task.unwrap().addresses;
        let texts = |ips: &[std::net::IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&addresses.docker), docker);
        assert_eq!(texts(&addresses.netinfo), netinfo);
        assert_eq!(found.invalid_entries, 0);
    }
}
