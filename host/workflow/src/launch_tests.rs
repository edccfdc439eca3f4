//! Jobs as tasks.

use jiff::Timestamp;
use serde_json::{Value, json};
use transom_scheduler::AgentLocation;

use super::*;
use crate::Variable;
use crate::ids::JobId;
use crate::model;

fn variable(name: &str, value: &str) -> Variable {
    Variable {
        name: name.to_owned(),
        value: value.into(),
    }
}

fn defaults() -> Settings {
    Settings {
        container_image_slave: Some("default:1".to_owned()),
        container_environment: vec![variable("A", "configured")],
        container_volume_dag_name: Some("dags".to_owned()),
        container_volume_dag_container_path: Some("/dags".to_owned()),
        container_volume_driver: Some("nfs".to_owned()),
        container_sock: Some("/run/docker.sock".to_owned()),
        container_user_group_id: Some("999".to_owned()),
        cluster_attributes: vec!["gpu:true?:cpu:true".to_owned()],
        ..Settings::default()
    }
}

fn spec(body: &Value, defaults: &Settings) -> Spec {
    model::read(body.as_object().unwrap(), defaults)
        .unwrap()
        .unwrap()
        .spec
}

fn launched_with(body: &Value, defaults: &Settings) -> Value {
    let job = ActiveJob {
        id: JobId::parse("airflow.d1.t1").unwrap(),
        queued_at: Timestamp::UNIX_EPOCH,
        spec: Arc::new(spec(body, defaults)),
    };
    let ports = job.spec.ports.iter().zip(31_000..);
    let placement = Placement {
        task: "airflow.d1.t1".into(),
        agent: AgentLocation {
            id: "S0".into(),
            hostname: "h".to_owned(),
            region: None,
            zone: None,
            endpoint: None,
        },
        host_ports: ports.map(|(_, port)| port).collect(),
    };
    serde_json::to_value(task(&job, defaults, &placement)).unwrap()
}

fn launched(body: &Value) -> Value {
    launched_with(body, &defaults())
}

/// Compares the whole `TaskInfo` of each recorded job.
#[test]
fn task_info_is_as_recorded() {
    let suite: Value = serde_json::from_str(include_str!("../tests/fixtures/task-infos.json")).unwrap();
    for case in suite["cases"].as_array().unwrap() {
        let configured = &case["defaults"];
        let text = |key: &str| configured[key].as_str().map(str::to_owned);
        let pairs = |key: &str| -> Vec<(String, String)> {
            serde_json::from_value(configured[key].clone()).unwrap_or_default()
        };
        let volumes = pairs("volumes");
        assert!(volumes.len() <= 2, "{volumes:?}");
        let (dags, logs) = (volumes.first(), volumes.get(1));
        let defaults = Settings {
            containers: configured["containers"] != false,
            container_image_slave: text("image"),
            container_environment: pairs("environment")
                .iter()
                .map(|(name, value)| variable(name, value))
                .collect(),
            container_volume_dag_name: dags.map(|(name, _)| name.clone()),
            container_volume_dag_container_path: dags.map(|(_, path)| path.clone()),
            container_volume_logs_name: logs.map(|(name, _)| name.clone()),
            container_volume_logs_container_path: logs.map(|(_, path)| path.clone()),
            container_volume_driver: text("volume_driver"),
            container_sock: text("sock"),
            container_user_group_id: text("user_group_id"),
            cluster_fetch_uri: text("fetch_uri"),
            cluster_fetch_username: text("fetch_user"),
            ..Settings::default()
        };
        let task = launched_with(&case["job"], &defaults);
        assert_eq!(task, case["task_info"], "{}", case["name"]);
    }
}

#[test]
fn arguments_reach_the_container_unchanged() {
    let argv = [
        "python",
        "-c",
        "print('it is', \"so\", $HOME)",
        "a b",
        "",
        "ü'\"\\",
    ];
    let docker = launched(&json!({"command": argv}));
    let command = &docker["command"];
    assert_eq!(command["shell"], false);
    // The docker containerizer runs `value` with the arguments.
    assert_eq!(command["value"], "python");
    assert_eq!(command["arguments"], json!(argv[1..]));

    for (body, defaults) in [
        (json!({"command": argv, "container_type": "MESOS"}), defaults()),
        (
            json!({"command": argv}),
            Settings {
                containers: false,
                ..defaults()
            },
        ),
    ] {
        let command = launched_with(&body, &defaults)["command"].clone();
        assert_eq!(
            (&command["shell"], &command["value"]),
            (&json!(false), &json!("python"))
        );
        assert_eq!(command["arguments"], json!(argv));
    }
    let without_name = launched(&json!({"command": []}));
    assert_eq!(without_name["command"].get("value"), None);
    let line = launched(&json!({"command": "echo $HOME"}));
    assert_eq!(line["command"]["shell"], true);
    assert_eq!(line["command"]["value"], "echo $HOME");
}

#[test]
fn container_has_the_fields_of_the_job() {
    let task = launched(&json!({
        "command": ["true"], "image": "alpine:3.20", "force_pull": false, "network_mode": "bridge", "user": "1000:1000",
        "volumes": ["/data:/mnt:ro", "vol:/v"], "ports": [80, {"host_port": 31001, "protocol": "udp", "name": "dns"}],
        "labels": {"team": "a"}, "container_sock": true, "environment": {"A": "own", "B": "b"},
        "max_runtime": 60, "kill_grace": 5,
    }));
    let container = &task["container"];
    assert_eq!(container["type"], "DOCKER");
    assert_eq!(
        container["docker"],
        json!({
            "image": "alpine:3.20", "network": "BRIDGE", "force_pull_image": false,
            "port_mappings": [
                {"host_port": 31000, "container_port": 80, "protocol": "tcp"},
                {"host_port": 31001, "container_port": 31001, "protocol": "udp"},
            ],
            "parameters": [
                {"key": "user", "value": "1000:1000"},
                {"key": "volume", "value": "/run/docker.sock:/var/run/docker.sock"},
                {"key": "group-add", "value": "999"},
            ],
        })
    );
    let named =
        |name: &str| json!({"type": "DOCKER_VOLUME", "docker_volume": {"name": name, "driver": "nfs"}});
    assert_eq!(
        container["volumes"],
        json!([
            {"container_path": "/dags", "mode": "RW", "source": named("dags")},
            {"container_path": "/mnt", "mode": "RO", "host_path": "/data"},
            {"container_path": "/v", "mode": "RW", "source": named("vol")},
        ])
    );
    assert_eq!(
        task["command"]["environment"]["variables"],
        json!([
            {"name": "A", "value": "own"},
            {"name": "B", "value": "b"},
            {"name": "PORT0", "value": "31000"},
            {"name": "PORT1", "value": "31001"},
        ])
    );
    assert_eq!(task["labels"]["labels"], json!([{"key": "team", "value": "a"}]));
    assert_eq!(task["discovery"]["ports"]["ports"][1]["name"], "dns");
    assert_eq!(task["max_completion_time"]["nanoseconds"], 60_000_000_000_i64);
    assert_eq!(
        task["kill_policy"]["grace_period"]["nanoseconds"],
        5_000_000_000_i64
    );
    assert_eq!(task["name"], "airflow.d1.t1");
}

#[test]
fn network_modes_map_to_container_networks() {
    for (mode, docker, infos) in [
        (None, "HOST", json!(null)),
        (Some("host"), "HOST", json!(null)),
        (Some("None"), "NONE", json!(null)),
        (Some("weave"), "USER", json!([{"name": "weave"}])),
    ] {
        let task = launched(&json!({"command": ["true"], "network_mode": mode}));
        assert_eq!(task["container"]["docker"]["network"], docker);
        assert_eq!(
            task["container"]
                .get("network_infos")
                .cloned()
                .unwrap_or_default(),
            infos
        );
    }
    let mesos = launched(
        &json!({"command": ["true"], "container_type": "MESOS", "network_mode": "cni", "ports": [8080]}),
    );
    assert_eq!(
        mesos["container"]["network_infos"],
        json!([{"name": "cni", "port_mappings": [{"host_port": 31000, "container_port": 8080, "protocol": "tcp"}]}])
    );
    assert_eq!(
        mesos["container"]["mesos"]["image"]["docker"]["name"],
        "default:1"
    );
}

#[test]
fn container_gets_no_socket_or_group_by_default() {
    let task = launched(&json!({"command": ["true"]}));
    assert_eq!(task["container"]["docker"].get("parameters"), None);
    assert_eq!(task["container"]["docker"].get("privileged"), None);
}

#[test]
fn task_of_a_dag_is_named_after_it() {
    let key = json!({"dag_id": "d", "task_id": "t", "run_id": "r", "try_number": 1});
    let task = launched(&json!({"command": ["true"], "airflow_key": key}));
    assert_eq!(task["name"], "d_t");
}

#[test]
fn commands_run_as_processes_without_containers() {
    let defaults = Settings {
        containers: false,
        ..defaults()
    };
    let task = launched_with(
        &json!({"command": ["true"], "image": "x", "user": "nobody"}),
        &defaults,
    );
    assert_eq!(task.get("container"), None);
    assert_eq!(task["command"]["user"], "nobody");
}

#[test]
fn jobs_with_equal_needs_share_a_run_spec() {
    let defaults = Arc::new(defaults());
    let mut run_specs = RunSpecCache::new(Arc::new(JobIndex::new()), Arc::clone(&defaults));
    let mut constraints = |body: Value| run_specs.run_spec(&spec(&body, &defaults));
    let first = constraints(json!({"command": ["a"], "image": "one"}));
    let from_attributes = constraints(json!({"command": ["b"], "image": "two", "environment": {"X": "y"}}));
    let more = constraints(json!({"command": ["a"], "cpus": 2}));
    let pinned = constraints(json!({"command": ["a"], "attributes": ["gpu:true"]}));
    assert!(Arc::ptr_eq(&first, &from_attributes));
    assert!(first.id != more.id && first.id != pinned.id && more.id != pinned.id);
    let expression = |text: &str| Constraint::Expression(text.to_owned());
    assert_eq!(
        pinned.constraints,
        [expression("gpu:true"), expression("gpu:true?:cpu:true")]
    );
}

#[test]
fn job_without_resources_gets_the_minimum_cpus() {
    let defaults = defaults();
    let mut run_specs = RunSpecCache::new(Arc::new(JobIndex::new()), Arc::new(defaults.clone()));
    for (body, expected) in [
        (json!({"cpus": 0, "mem_limit": 0, "disk": 0}), (0.01, 0.0, 0.0)),
        (
            json!({"cpus": 0.0001, "mem_limit": "0m", "disk": 0}),
            (0.01, 0.0, 0.0),
        ),
        // A zero amount is kept if the job has another resource.
        (json!({"cpus": 0}), (0.0, 256.0, 1000.0)),
        (json!({"cpus": 0.5, "mem_limit": "0", "disk": 0}), (0.5, 0.0, 0.0)),
        (
            json!({"cpus": 0, "mem_limit": 0, "disk": 0, "ports": [0]}),
            (0.0, 0.0, 0.0),
        ),
    ] {
        let mut body = body;
        body["command"] = json!(["true"]);
        let run = run_specs.run_spec(&spec(&body, &defaults));
        assert_eq!((run.cpus, run.mem, run.disk), expected, "{body}");
    }
}
