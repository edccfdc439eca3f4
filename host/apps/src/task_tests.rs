#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use transom_scheduler::{AgentLocation, PortRequest};

use super::environment::{LABEL_KEY_LIMIT, LABEL_VALUE_LIMIT};
use super::*;
use crate::settings::{CheckRunner, Checks};
use crate::testing::app;

fn built(definition: &Value, ports: &[u16], checks: Checks) -> Value {
    let settings = LaunchSettings {
        checks,
        ..LaunchSettings::default()
    };
    built_with(definition, ports, &settings)
}

fn built_with(definition: &Value, ports: &[u16], settings: &LaunchSettings) -> Value {
    built_app(app(definition), ports, settings)
}

fn built_app(app: App, ports: &[u16], settings: &LaunchSettings) -> Value {
    let agent = AgentLocation {
        id: "a-S0".into(),
        hostname: "h1".to_owned(),
        region: None,
        zone: None,
        endpoint: None,
    };
    let placement = Placement {
        task: "t".into(),
        agent,
        host_ports: ports.to_vec(),
    };
    let spec = run_spec(&app.into(), BTreeSet::new(), settings);
    serde_json::to_value(spec.build.task().unwrap().build(&placement).unwrap()).unwrap()
}

/// Compares every field of each `TaskInfo` with the recorded one.
#[test]
fn task_info_is_as_recorded() {
    let suite: Value = serde_json::from_str(include_str!("../tests/fixtures/task-infos.json")).unwrap();
    for case in suite["cases"].as_array().unwrap() {
        let mut app = app(&case["app"]);
        app.version = "2018-01-01T00:00:00.000Z".parse().unwrap();
        let checks = match case["checks"].as_str().unwrap() {
            "cluster" => Checks {
                network_from: CheckRunner::Agent,
                exec_from: CheckRunner::Agent,
                ..Checks::default()
            },
            "host" => Checks {
                network_from: CheckRunner::Daemon,
                exec_from: CheckRunner::Daemon,
                ..Checks::default()
            },
            _ => Checks::default(),
        };
        let settings = LaunchSettings {
            checks,
            env_vars_prefix: case["env_vars_prefix"].as_str().unwrap().into(),
            ..LaunchSettings::default()
        };
        let ports: Vec<u16> = serde_json::from_value(case["host_ports"].clone()).unwrap();
        let task = built_app(app, &ports, &settings);
        assert_eq!(task, case["task_info"], "{}", case["name"]);
    }
}

fn env(task: &Value) -> BTreeMap<String, String> {
    let variables = task["command"]["environment"]["variables"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    variables
        .iter()
        .map(|variable| (text(&variable["name"]), text(&variable["value"])))
        .collect()
}

#[test]
fn task_info_has_command_environment_and_discovery() {
    let task = built(
        &json!({
            "id": "/shop/web", "cmd": "./web --port $PORT0", "user": "www", "cpus": 0.5, "labels": {"tier-1": "yes"},
            "env": {"HOST": "mine", "A": "b"}, "taskKillGracePeriodSeconds": 3,
            "portDefinitions": [{"port": 80, "name": "http"}, {"port": 0, "protocol": "udp,tcp", "labels": {"x": "y"}}],
            "fetch": [{"uri": "http://files/a.tgz"}],
        }),
        &[31000, 31005],
        Checks::default(),
    );
    assert_eq!(task["name"], "web.shop");
    assert_eq!(
        (&task["command"]["shell"], &task["command"]["user"]),
        (&json!(true), &json!("www"))
    );
    assert_eq!(task["command"]["uris"][0]["value"], "http://files/a.tgz");
    assert_eq!(
        task["kill_policy"]["grace_period"]["nanoseconds"],
        3_000_000_000_i64
    );
    assert_eq!(
        task["labels"]["labels"],
        json!([{"key": "tier-1", "value": "yes"}])
    );
    let env = env(&task);
    for (name, value) in [
        ("HOST", "mine"),
        ("A", "b"),
        ("PORT", "31000"),
        ("PORTS", "31000,31005"),
        ("PORT0", "31000"),
        ("PORT1", "31005"),
        ("PORT_80", "31000"),
        ("PORT_31005", "31005"),
        ("PORT_HTTP", "31000"),
        ("MARATHON_APP_ID", "/shop/web"),
        ("MARATHON_APP_RESOURCE_CPUS", "0.5"),
        ("MARATHON_APP_RESOURCE_MEM", "128.0"),
        ("MARATHON_APP_RESOURCE_GPUS", "0"),
        ("MARATHON_APP_LABELS", "TIER_1"),
        ("MARATHON_APP_LABEL_TIER_1", "yes"),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
    let ports = task["discovery"]["ports"]["ports"].as_array().unwrap();
    let shown: Vec<_> = ports
        .iter()
        .map(|port| {
            (
                port["number"].as_u64().unwrap(),
                port["protocol"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(shown, [(31000, "tcp"), (31005, "udp"), (31005, "tcp")]);
    assert_eq!(
        (&task["discovery"]["name"], &task["discovery"]["visibility"]),
        (&json!("web.shop"), &json!("FRAMEWORK"))
    );
}

/// Additional members of the definition of `/shop/web`, its ports, the prefix, and the expected
/// variables that differ between cases.
type EnvironmentCase = (
    Value,
    &'static [u16],
    &'static str,
    &'static [(&'static str, &'static str)],
);

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn environment_has_exactly_upstreams_variables() {
    let cases: [EnvironmentCase; 6] = [
        (
            json!({}),
            &[31000],
            "",
            &[
                ("HOST", "h1"),
                ("PORT", "31000"),
                ("PORTS", "31000"),
                ("PORT0", "31000"),
                ("PORT_31000", "31000"),
                ("PORT_DEFAULT", "31000"),
                ("MARATHON_APP_LABELS", ""),
            ],
        ),
        // Without ports there are no port variables.
        (
            json!({"portDefinitions": []}),
            &[],
            "",
            &[("HOST", "h1"), ("MARATHON_APP_LABELS", "")],
        ),
        // A port name with a hyphen appears in upstream's form and in a form that shells can read.
        (
            json!({"portDefinitions": [{"port": 80, "name": "http-api"}, {"port": 0}]}),
            &[31000, 31005],
            "",
            &[
                ("HOST", "h1"),
                ("PORT", "31000"),
                ("PORTS", "31000,31005"),
                ("PORT0", "31000"),
                ("PORT1", "31005"),
                ("PORT_80", "31000"),
                ("PORT_31005", "31005"),
                ("PORT_HTTP-API", "31000"),
                ("PORT_HTTP_API", "31000"),
                ("MARATHON_APP_LABELS", ""),
            ],
        ),
        // The prefix applies only to the variables of host and ports.
        (
            json!({"portDefinitions": [{"port": 80, "name": "http"}], "env": {"A": "b"}}),
            &[31000],
            "X_",
            &[
                ("X_HOST", "h1"),
                ("X_PORT", "31000"),
                ("X_PORTS", "31000"),
                ("X_PORT0", "31000"),
                ("X_PORT_80", "31000"),
                ("X_PORT_HTTP", "31000"),
                ("A", "b"),
                ("MARATHON_APP_LABELS", ""),
            ],
        ),
        // The definition's own variables override all others.
        (
            json!({
                "portDefinitions": [],
                "env": {"HOST": "mine", "MESOS_TASK_ID": "mine", "MARATHON_APP_ID": "mine", "MARATHON_APP_LABELS": "mine"},
            }),
            &[],
            "",
            &[
                ("HOST", "mine"),
                ("MESOS_TASK_ID", "mine"),
                ("MARATHON_APP_ID", "mine"),
                ("MARATHON_APP_LABELS", "mine"),
            ],
        ),
        // With a prefix, the definition's variables cannot override those of host and ports.
        (
            json!({"portDefinitions": [], "env": {"HOST": "mine"}}),
            &[],
            "X_",
            &[("X_HOST", "h1"), ("HOST", "mine"), ("MARATHON_APP_LABELS", "")],
        ),
    ];
    for (more, ports, prefix, expected) in cases {
        let mut definition = json!({
            "id": "/shop/web", "cmd": "env", "cpus": 0.5, "mem": 64, "disk": 10,
        });
        definition
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let settings = LaunchSettings {
            env_vars_prefix: prefix.into(),
            ..LaunchSettings::default()
        };
        let mut found = env(&built_with(&definition, ports, &settings));
        let version = found.remove("MARATHON_APP_VERSION").unwrap();
        assert!(version.parse::<Moment>().is_ok(), "{version}");
        let wanted: BTreeMap<String, String> = [
            ("MESOS_TASK_ID", "t"),
            ("MARATHON_APP_ID", "/shop/web"),
            ("MARATHON_APP_RESOURCE_CPUS", "0.5"),
            ("MARATHON_APP_RESOURCE_MEM", "64.0"),
            ("MARATHON_APP_RESOURCE_DISK", "10.0"),
            ("MARATHON_APP_RESOURCE_GPUS", "0"),
        ]
        .iter()
        .chain(expected)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
        assert_eq!(found, wanted, "{more} with {prefix:?}");
    }
}

#[test]
fn labels_become_variables_unless_they_are_too_long() {
    let longest_key = "k".repeat(LABEL_KEY_LIMIT - 1);
    let too_long_key = "k".repeat(LABEL_KEY_LIMIT);
    let mut labels = json!({
        "tier-1": "yes", "a.-b": "one underscore", "HAPROXY_0_VHOST": "x", "long": "v".repeat(LABEL_VALUE_LIMIT - 1),
        "too-long": "v".repeat(LABEL_VALUE_LIMIT),
    });
    labels[&longest_key] = json!("longest");
    labels[&too_long_key] = json!("too long");
    let task = built(
        &json!({"id": "/a", "cmd": "env", "labels": labels}),
        &[1],
        Checks::default(),
    );
    let env = env(&task);
    let prefix = "MARATHON_APP_LABEL_";
    let found: BTreeMap<&str, usize> = env
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value.len())))
        .collect();
    let longest = longest_key.to_uppercase();
    let expected = BTreeMap::from([
        ("TIER_1", 3),
        ("A_B", 14),
        ("HAPROXY_0_VHOST", 1),
        ("LONG", LABEL_VALUE_LIMIT - 1),
        (longest.as_str(), 7),
    ]);
    assert_eq!(found, expected);
    let names: Vec<&str> = env["MARATHON_APP_LABELS"].split(' ').collect();
    assert_eq!(names, expected.keys().copied().collect::<Vec<_>>());
}

#[test]
fn arguments_run_without_a_shell() {
    let task = built(
        &json!({"id": "/a", "args": ["/bin/sleep", "9"]}),
        &[1],
        Checks::default(),
    );
    assert_eq!(task["command"]["shell"], false);
    assert_eq!(
        (&task["command"]["value"], &task["command"]["arguments"]),
        (&json!("/bin/sleep"), &json!(["/bin/sleep", "9"]))
    );
}

#[test]
fn task_has_a_check_only_when_the_agent_makes_it() {
    let cluster = Checks {
        network_from: CheckRunner::Agent,
        exec_from: CheckRunner::Agent,
        ..Checks::default()
    };
    let host = Checks {
        network_from: CheckRunner::Daemon,
        exec_from: CheckRunner::Daemon,
        ..Checks::default()
    };
    for (check, checks, expected) in [
        (json!({"http": {"path": "/p"}}), Checks::default(), Value::Null),
        (json!({"tcp": {}}), Checks::default(), Value::Null),
        (
            json!({"exec": {"command": {"shell": "true"}}}),
            Checks::default(),
            json!("COMMAND"),
        ),
        (json!({"exec": {"command": {"shell": "true"}}}), host, Value::Null),
        (json!({"http": {"path": "/p"}}), cluster, json!("HTTP")),
        (json!({"tcp": {}}), cluster, json!("TCP")),
    ] {
        let task = built(
            &json!({"id": "/a", "cmd": "sleep 1", "check": check}),
            &[31001],
            checks,
        );
        assert_eq!(task["check"]["type"], expected, "{check} {checks:?}");
    }
    let task = built(
        &json!({"id": "/a", "cmd": "sleep 1", "check": {"http": {"path": "/p"}, "delaySeconds": 0}}),
        &[31001],
        cluster,
    );
    let expected = json!({
        "type": "HTTP", "http": {"port": 31001, "path": "/p"}, "delay_seconds": 0.0, "interval_seconds": 60.0, "timeout_seconds": 20.0,
    });
    assert_eq!(task["check"], expected);
}

#[test]
fn fixed_ports_are_requested_only_with_require_ports() {
    let definition = |required| json!({"id": "/a", "cmd": "sleep 1", "requirePorts": required, "portDefinitions": [{"port": 80}, {"port": 0}]});
    let ports = |required| {
        run_spec(
            &app(&definition(required)).into(),
            BTreeSet::new(),
            &LaunchSettings::default(),
        )
        .ports
        .clone()
    };
    assert_eq!(ports(true), [PortRequest::Fixed(80), PortRequest::Random]);
    assert_eq!(ports(false), [PortRequest::Random, PortRequest::Random]);
}

/// The task of an app in a container.
fn contained(more: &Value, ports: &[u16]) -> Value {
    let mut body = json!({"id": "/a"});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    built(&body, ports, Checks::default())
}

#[test]
fn docker_container_has_image_network_and_mappings() {
    let task = contained(
        &json!({
            "args": ["--port", "80"], "networks": [{"mode": "container/bridge"}],
            "container": {
                "type": "DOCKER",
                "docker": {
                    "image": "web:1", "forcePullImage": true, "privileged": true,
                    "parameters": [{"key": "cap-add", "value": "NET_ADMIN"}],
                },
                "portMappings": [
                    {"containerPort": 80, "name": "http", "labels": {"k": "v"}},
                    {"containerPort": 0, "hostPort": 31500, "protocol": "udp,tcp"},
                ],
                "volumes": [{"containerPath": "/srv", "hostPath": "/data", "mode": "RO"}],
            },
        }),
        &[31000, 31500],
    );
    let mapping = |host, container, protocol| json!({"host_port": host, "container_port": container, "protocol": protocol});
    assert_eq!(
        task["container"],
        json!({
            "type": "DOCKER",
            "docker": {
                "image": "web:1", "force_pull_image": true, "privileged": true, "network": "BRIDGE",
                "parameters": [
                    {"key": "cap-add", "value": "NET_ADMIN"}, {"key": "label", "value": "MESOS_TASK_ID=t"},
                ],
                "port_mappings": [
                    mapping(31000, 80, "tcp"), mapping(31500, 31500, "udp"), mapping(31500, 31500, "tcp"),
                ],
            },
            "volumes": [{"container_path": "/srv", "host_path": "/data", "mode": "RO"}],
        })
    );
    assert_eq!(
        task["command"]["arguments"],
        json!(["--port", "80"]),
        "arguments are passed to the entry point"
    );
    assert_eq!(task["command"].get("value"), None);
    let env = env(&task);
    for (name, value) in [
        ("MARATHON_APP_DOCKER_IMAGE", "web:1"),
        ("PORTS", "31000,31500"),
        ("PORT0", "31000"),
        ("PORT_80", "31000"),
        ("PORT_HTTP", "31000"),
        ("PORT_31500", "31500"),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
    let port = &task["discovery"]["ports"]["ports"][0];
    let labels = json!([{"key": "k", "value": "v"}, {"key": "network-scope", "value": "host"}]);
    assert_eq!(
        (&port["number"], &port["labels"]["labels"]),
        (&json!(31000), &labels)
    );
}

#[test]
fn image_runs_its_own_command_when_the_app_names_none() {
    let task = contained(&json!({"container": {"docker": {"image": "web:1"}}}), &[31000]);
    assert_eq!(task["command"]["shell"], false);
    assert_eq!(task["command"].get("value"), None);
    assert_eq!(task["command"].get("arguments"), None);
    assert_eq!(task["container"]["docker"]["network"], "HOST");
    let process = contained(
        &json!({"args": ["/bin/true"], "container": {"type": "MESOS"}}),
        &[31000],
    );
    assert_eq!(
        process["command"]["value"], "/bin/true",
        "without an image, the first argument is the program"
    );
}

#[test]
fn mesos_container_has_networks_secrets_and_options() {
    let task = contained(
        &json!({
            "cmd": "env", "tty": true, "resourceLimits": {"cpus": 2.5, "mem": "unlimited"},
            "networks": [{"mode": "container", "name": "a", "labels": {"k": "v"}}, {"mode": "container", "name": "b"}],
            "secrets": {"s": {"source": "/store/s"}}, "env": {"PASSWORD": {"secret": "s"}},
            "container": {
                "type": "MESOS",
                "docker": {"image": "web:1", "pullConfig": {"secret": "s"}},
                "linuxInfo": {"seccomp": {"unconfined": true}, "ipcInfo": {"mode": "PRIVATE", "shmSize": 64}},
                "portMappings": [
                    {"containerPort": 80, "hostPort": 0, "networkNames": ["b"]},
                    {"containerPort": 9000, "name": "admin"},
                ],
                "volumes": [
                    {"containerPath": "key", "secret": "s"},
                    {"containerPath": "data", "mode": "RW", "external": {
                        "name": "v", "provider": "dvdi", "size": 5,
                        "options": {"dvdi/driver": "rexray", "dvdi/iops": " 100 "},
                    }},
                ],
            },
        }),
        &[31000],
    );
    let secret = json!({"type": "REFERENCE", "reference": {"name": "/store/s"}});
    assert_eq!(
        task["container"],
        json!({
            "type": "MESOS",
            "mesos": {"image": {"type": "DOCKER", "cached": true, "docker": {"name": "web:1", "config": secret}}},
            "network_infos": [
                {"name": "a", "labels": {"labels": [{"key": "k", "value": "v"}]}},
                {"name": "b", "port_mappings": [{"host_port": 31000, "container_port": 80, "protocol": "tcp"}]},
            ],
            "linux_info": {"ipc_mode": "PRIVATE", "shm_size": 64, "seccomp": {"unconfined": true}},
            "tty_info": {},
            "volumes": [
                {"container_path": "key", "mode": "RO", "source": {"type": "SECRET", "secret": secret}},
                {"container_path": "data", "mode": "RW", "source": {
                    "type": "DOCKER_VOLUME",
                    "docker_volume": {
                        "name": "v", "driver": "rexray",
                        "driver_options": {"parameter": [
                            {"key": "iops", "value": "100"}, {"key": "size", "value": "5"},
                        ]},
                    },
                }},
            ],
        })
    );
    assert_eq!(
        task["limits"],
        json!({"cpus": {"value": 2.5}, "mem": {"value": "Infinity"}})
    );
    let variables = task["command"]["environment"]["variables"].as_array().unwrap();
    let variable = |name: &str| {
        variables
            .iter()
            .find(|variable| variable["name"] == name)
            .unwrap()
    };
    assert_eq!(
        variable("PASSWORD"),
        &json!({"name": "PASSWORD", "type": "SECRET", "secret": secret})
    );
    assert_eq!(variable("PORT0")["value"], "31000");
    assert_eq!(variable("PORT1")["value"], "9000");
    assert_eq!(variable("PORT_ADMIN")["value"], "9000");
    assert_eq!(
        variable("PORTS")["value"],
        "31000",
        "PORTS omits ports with a number in the definition"
    );
    let ports = task["discovery"]["ports"]["ports"].as_array().unwrap();
    let shown: Vec<_> = ports
        .iter()
        .map(|port| (port["number"].as_u64().unwrap(), port["labels"]["labels"].clone()))
        .collect();
    let in_network = |name: &str| json!([{"key": "network-name", "value": name}, {"key": "network-scope", "value": "container"}]);
    assert_eq!(
        shown,
        [
            (31000, json!([{"key": "network-scope", "value": "host"}])),
            (9000, in_network("a")),
            (9000, in_network("b")),
        ]
    );
}

#[test]
fn terminal_needs_a_container_and_nothing_else_does() {
    let plain = contained(&json!({"cmd": "env", "tty": false}), &[1]);
    assert_eq!(plain.get("container"), None);
    let tty = contained(&json!({"cmd": "env", "tty": true}), &[1]);
    assert_eq!(
        tty["container"],
        json!({"type": "MESOS", "mesos": {}, "tty_info": {}})
    );
}

#[test]
fn bridge_of_the_mesos_containerizer_has_a_name() {
    let task = contained(
        &json!({"cmd": "env", "networks": [{"mode": "container/bridge"}]}),
        &[31000],
    );
    let mapping = json!({"host_port": 31000, "container_port": 31000, "protocol": "tcp"});
    assert_eq!(
        task["container"]["network_infos"],
        json!([{"name": "mesos-bridge", "port_mappings": [mapping]}])
    );
}

#[test]
fn check_of_the_agent_probes_the_port_in_the_container() {
    let cluster = Checks {
        network_from: CheckRunner::Agent,
        exec_from: CheckRunner::Agent,
        ..Checks::default()
    };
    let task = built(
        &json!({
            "id": "/a", "cmd": "env", "networks": [{"mode": "container/bridge"}],
            "container": {"type": "MESOS", "portMappings": [{"containerPort": 80}]}, "check": {"tcp": {}},
        }),
        &[31000],
        cluster,
    );
    assert_eq!(task["check"]["tcp"]["port"], 80);
}
