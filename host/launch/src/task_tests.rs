//! Whole tasks, as each kind of service describes them.

use serde_json::{Value, json};
use transom_cluster::v1::{Uri, Visibility};

use super::*;
use crate::{
    Containerizer, Environment, Image, Network, Port, PortMapping, Probe, ProbeTimes, Program, Volume,
    VolumeSource,
};

fn info(task: Task) -> Value {
    serde_json::to_value(TaskInfo::from(task)).unwrap()
}

fn argv(argv: &[&str]) -> Program {
    Program::Argv(argv.iter().map(|argument| (*argument).to_owned()).collect())
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    variables.iter().map(owned).collect()
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// The fields that the scheduler fills in, still empty.
fn with_placeholders(mut task: Value) -> Value {
    task["task_id"] = json!({"value": ""});
    task["agent_id"] = json!({"value": ""});
    task
}

#[test]
fn process_without_options_has_only_name_and_command() {
    let task = Task::new("a", Command::new(Program::Shell("true".to_owned())));
    let expected = json!({"name": "a", "command": {"shell": true, "value": "true", "environment": {}}});
    assert_eq!(info(task), with_placeholders(expected));
}

/// An app with the network of its agent, as the apps service describes it.
#[test]
fn process_has_labels_discovery_check_and_kill_policy() {
    let port = |name: &str, number, labels: &[(&str, &str)]| Port {
        number,
        name: Some(name.to_owned()),
        protocol: "tcp".to_owned(),
        labels: map(labels),
    };
    let task = Task {
        labels: map(&[("b", "2"), ("a", "1")]),
        discovery: Some(Discovery {
            name: "web.shop".to_owned(),
            visibility: Visibility::Framework,
            ports: vec![port("http", 31005, &[]), port("admin", 31000, &[("x", "y")])],
        }),
        check: Some(Check {
            probe: Probe::Tcp { port: 31005 },
            times: ProbeTimes::default(),
        }),
        kill_grace: Some(Duration::from_secs(3)),
        max_runtime: Some(Duration::from_mins(1)),
        ..Task::new(
            "web.shop",
            Command {
                environment: environment(&[("PORT0", "31005")]),
                uris: vec![Uri {
                    value: "http://files/a.tgz".to_owned(),
                    extract: Some(true),
                    ..Uri::default()
                }],
                user: Some("www".to_owned()),
                ..Command::new(argv(&["./web", "-v"]))
            },
        )
    };
    let expected = json!({
        "name": "web.shop",
        "command": {
            "shell": false, "value": "./web", "arguments": ["./web", "-v"], "user": "www",
            "environment": {"variables": [{"name": "PORT0", "value": "31005"}]},
            "uris": [{"value": "http://files/a.tgz", "extract": true}],
        },
        "labels": {"labels": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]},
        "discovery": {"visibility": "FRAMEWORK", "name": "web.shop", "ports": {"ports": [
            {"number": 31005, "name": "http", "protocol": "tcp"},
            {"number": 31000, "name": "admin", "protocol": "tcp", "labels": {"labels": [{"key": "x", "value": "y"}]}},
        ]}},
        "check": {"type": "TCP", "tcp": {"port": 31005}},
        "kill_policy": {"grace_period": {"nanoseconds": 3_000_000_000_i64}},
        "max_completion_time": {"nanoseconds": 60_000_000_000_i64},
    });
    assert_eq!(info(task), with_placeholders(expected));
}

/// The datastore of a Kubernetes distribution: a docker container with a volume of a driver, a
/// health check and limits.
#[test]
fn docker_container_has_volumes_health_check_and_limits() {
    let task = Task {
        container: Some(Container {
            image: Some(Image {
                name: "docker.io/mariadb:10.8.3".to_owned(),
                force_pull: true,
                pull_secret: None,
            }),
            hostname: Some("datastore.local".to_owned()),
            network: Network::Bridge {
                name: Some(String::new()),
                labels: BTreeMap::new(),
            },
            port_mappings: vec![PortMapping {
                host_port: 31001,
                container_port: 3306,
                protocol: "tcp".to_owned(),
                networks: Vec::new(),
            }],
            volumes: vec![Volume {
                container_path: "/var/lib/mysql".to_owned(),
                read_only: false,
                source: VolumeSource::Docker {
                    name: "/data/datastore".to_owned(),
                    driver: Some("local".to_owned()),
                    options: BTreeMap::new(),
                },
            }],
            ..Container::new(Containerizer::Docker {
                privileged: true,
                parameters: vec![("cap-add".to_owned(), "NET_ADMIN".to_owned())],
            })
        }),
        discovery: Some(Discovery {
            name: "datastore".to_owned(),
            visibility: Visibility::External,
            ports: Vec::new(),
        }),
        health_check: Some(HealthCheck {
            probe: Probe::Command(argv(&["mysqladmin", "ping", "-h", "localhost"])),
            times: ProbeTimes::default(),
            grace_period: None,
            consecutive_failures: None,
            https: false,
            ipv6: false,
        }),
        limits: Limits {
            cpus: Some(Limit::Amount(1.0)),
            mem: Some(Limit::Amount(1000.0)),
        },
        ..Task::new(
            "datastore",
            Command {
                environment: environment(&[("MYSQL_DATABASE", "k3s")]),
                ..Command::new(Program::EntryPoint(Vec::new()))
            },
        )
    };
    let source =
        json!({"type": "DOCKER_VOLUME", "docker_volume": {"driver": "local", "name": "/data/datastore"}});
    let expected = json!({
        "name": "datastore",
        "command": {
            "shell": false,
            "environment": {"variables": [{"name": "MYSQL_DATABASE", "value": "k3s"}]},
        },
        "container": {
            "type": "DOCKER",
            "hostname": "datastore.local",
            "volumes": [{"mode": "RW", "container_path": "/var/lib/mysql", "source": source}],
            "docker": {
                "image": "docker.io/mariadb:10.8.3", "network": "BRIDGE", "privileged": true,
                "force_pull_image": true,
                "port_mappings": [{"host_port": 31001, "container_port": 3306, "protocol": "tcp"}],
                "parameters": [{"key": "cap-add", "value": "NET_ADMIN"}],
            },
            "network_infos": [{"name": ""}],
        },
        "health_check": {"type": "COMMAND", "command": {
            "shell": false, "value": "mysqladmin", "arguments": ["ping", "-h", "localhost"],
        }},
        "discovery": {"visibility": "EXTERNAL", "name": "datastore", "ports": {}},
        "limits": {"cpus": {"value": 1.0}, "mem": {"value": 1000.0}},
    });
    assert_eq!(info(task), with_placeholders(expected));
}

#[test]
fn executor_gets_the_command_and_container_of_its_task() {
    let task = Task {
        executor: Some("mine".to_owned()),
        container: Some(Container::new(Containerizer::Mesos)),
        ..Task::new("a", Command::new(Program::Shell("./executor".to_owned())))
    };
    let info = info(task);
    assert!(info["command"].is_null() && info["container"].is_null(), "{info}");
    let executor = &info["executor"];
    assert_eq!(executor["executor_id"]["value"], "mine");
    assert_eq!(executor["type"], "CUSTOM");
    assert_eq!(executor["command"]["value"], "./executor");
    assert_eq!(executor["container"]["type"], "MESOS");
}
