#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::*;
use crate::testing::{app, networked_record};

/// An app in this network, with these port mappings.
fn mapped(network: &Value, mappings: &Value) -> App {
    app(&json!({
        "cmd": "sleep 1", "networks": [network], "container": {"type": "MESOS", "portMappings": mappings},
    }))
}

fn bridge() -> Value {
    json!({"mode": "container/bridge"})
}

fn weave() -> Value {
    json!({"mode": "container", "name": "weave"})
}

#[test]
fn mappings_request_the_ports_of_the_agent_that_they_name() {
    let mappings = json!([{"hostPort": 0}, {"hostPort": 80}, {"containerPort": 8080}]);
    for (network, expected) in [
        (weave(), vec![PortRequest::Random, PortRequest::Fixed(80)]),
        (
            bridge(),
            vec![PortRequest::Random, PortRequest::Fixed(80), PortRequest::Random],
        ),
    ] {
        assert_eq!(requests(&mapped(&network, &mappings)), expected, "{network}");
    }
}

#[test]
fn container_ports_without_a_number_equal_those_of_the_agent() {
    let app = mapped(
        &weave(),
        &json!([{"containerPort": 80}, {"hostPort": 0}, {"containerPort": 443, "hostPort": 0}, {}]),
    );
    let ports = of_instance(&app, "a.instance-1._app.1", &[31000, 31001]);
    let numbers: Vec<_> = ports.iter().map(|port| (port.host, port.container)).collect();
    assert_eq!(
        numbers[..3],
        [
            (None, Some(80)),
            (Some(31000), Some(31000)),
            (Some(31001), Some(443))
        ]
    );
    let (host, drawn) = numbers[3];
    assert_eq!(host, None);
    assert!(drawn.unwrap() > 1024, "{drawn:?}");
    let again = of_instance(&app, "a.instance-1._app.1", &[31000, 31001]);
    assert_eq!(again, ports, "the ports are the same whenever they are computed");
    let other = of_instance(&app, "a.instance-1._app.2", &[31000, 31001]);
    assert_ne!(other[3].container, drawn, "another task has another port");
}

#[test]
fn derived_ports_are_distinct() {
    let app = mapped(&weave(), &json!([{}, {}, {}]));
    let ports = of_instance(&app, "t", &[]);
    let distinct: BTreeSet<u16> = ports.iter().map(InstancePort::listen_port).collect();
    assert_eq!(distinct.len(), 3, "{ports:?}");
}

#[test]
fn endpoint_is_at_the_agent_or_at_the_address_of_the_container() {
    let at = |address: &str| json!([{"name": "weave", "ip_addresses": [{"ip_address": address}]}]);
    let fixed = json!([{"containerPort": 80}]);
    let on_agent = json!([{"containerPort": 80, "hostPort": 0}]);
    let host = app(&json!({"cmd": "sleep 1"}));
    let (by_index, by_number) = (CheckPort::PortIndex(0), CheckPort::Port(9000));
    let nowhere = json!([]);
    for (app, ports, networks, port, expected) in [
        (&host, &[31000][..], at("10.0.0.1"), by_index, Some("h1:31000")),
        (&host, &[31000], at("10.0.0.1"), by_number, Some("h1:9000")),
        (&host, &[31000], nowhere.clone(), CheckPort::PortIndex(1), None),
        (
            &mapped(&bridge(), &fixed),
            &[31000],
            at("172.17.0.2"),
            by_index,
            Some("h1:31000"),
        ),
        (
            &mapped(&bridge(), &fixed),
            &[31000],
            at("172.17.0.2"),
            by_number,
            Some("h1:9000"),
        ),
        (
            &mapped(&weave(), &fixed),
            &[],
            at("10.32.0.1"),
            by_index,
            Some("10.32.0.1:80"),
        ),
        (
            &mapped(&weave(), &fixed),
            &[],
            at("10.32.0.1"),
            by_number,
            Some("10.32.0.1:9000"),
        ),
        (
            &mapped(&weave(), &on_agent),
            &[31000],
            at("10.32.0.1"),
            by_index,
            Some("10.32.0.1:80"),
        ),
        (
            &mapped(&weave(), &on_agent),
            &[31000],
            nowhere.clone(),
            by_index,
            Some("h1:31000"),
        ),
        (&mapped(&weave(), &fixed), &[], nowhere.clone(), by_index, None),
        (&mapped(&weave(), &fixed), &[], nowhere, by_number, None),
    ] {
        let found = endpoint(app, &networked_record(ports, &networks), port);
        let found = found.map(|found| format!("{}:{}", found.host, found.port));
        assert_eq!(
            found.as_deref(),
            expected,
            "{:?} {networks} {port:?}",
            app.networks
        );
    }
}

#[test]
fn endpoint_is_in_the_network_of_the_mapping() {
    let app = app(&json!({
        "cmd": "sleep 1", "networks": [{"mode": "container", "name": "a"}, {"mode": "container", "name": "b"}],
        "container": {"type": "MESOS", "portMappings": [{"containerPort": 80, "networkNames": ["b"]}]},
    }));
    let networks = json!([
        {"name": "a", "ip_addresses": [{"ip_address": "10.1.0.1"}]},
        {"name": "b", "ip_addresses": [{"ip_address": "10.2.0.1"}]},
    ]);
    let found = endpoint(&app, &networked_record(&[], &networks), CheckPort::PortIndex(0)).unwrap();
    assert_eq!((found.host.as_str(), found.port), ("10.2.0.1", 80));
}
