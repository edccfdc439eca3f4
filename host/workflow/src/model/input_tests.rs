//! Bodies, field by field.

use serde_json::{Value, json};

use super::*;

fn defaults() -> Settings {
    Settings {
        container_image_slave: Some("default:1".to_owned()),
        ..Settings::default()
    }
}

fn read_with(body: &Value, defaults: &Settings) -> Result<Request, Vec<Value>> {
    read(body.as_object().unwrap(), defaults)
        .unwrap()
        .map_err(|problems| json!(problems).as_array().unwrap().clone())
}

#[test]
fn operator_bodies_are_parsed() {
    let body = json!({
        "airflow_task_id": "airflow.d1.t1", "container_type": "DOCKER", "image": "alpine:3.20", "force_pull": false,
        "environment": {"A": "b", "N": 1, "T": true}, "attributes": ["gpu:true"], "volumes": ["/a:/b:ro"],
        "command": ["/bin/sh", "-c", "echo 'it is' \"so\""], "mem_limit": "1g", "cpus": 0.5, "disk": 10,
        "network_mode": "bridge", "user": "1000", "priority": 5, "something": "else",
    });
    let request = read_with(&body, &defaults()).unwrap();
    assert_eq!(request.id.unwrap().as_str(), "airflow.d1.t1");
    let spec = request.spec;
    assert_eq!(
        spec.command,
        Command::Args(vec![
            "/bin/sh".to_owned(),
            "-c".to_owned(),
            "echo 'it is' \"so\"".to_owned()
        ])
    );
    assert_eq!((spec.cpus, spec.mem, spec.disk), (0.5, 1024.0, 10.0));
    assert_eq!(spec.priority, 5);
    assert_eq!(spec.environment["N"], "1");
    assert_eq!(spec.environment["T"], "true");
    assert!(!spec.force_pull && spec.volumes[0].read_only);
    assert_eq!(spec.network_mode.as_deref(), Some("bridge"));
}

#[test]
fn missing_fields_use_the_configured_defaults() {
    let request = read_with(&json!({"command": [], "cpus": null, "user": null}), &defaults()).unwrap();
    assert_eq!(request.id, None);
    let spec = request.spec;
    assert_eq!(spec.command, Command::Args(Vec::new()));
    assert_eq!((spec.cpus, spec.mem, spec.disk), (0.1, 256.0, 1000.0));
    assert!(spec.force_pull && spec.priority == 0);
    assert_eq!((spec.image, spec.user, spec.network_mode), (None, None, None));
}

#[test]
fn neutral_names_win_and_executor_config_is_the_fallback() {
    let body = json!({
        "workflow_task_id": "neutral", "airflow_task_id": "product", "command": "echo hi", "memlimit": 512,
        "airflow_key": {"dag_id": "d", "task_id": "t", "run_id": "r", "try_number": 2},
        "executor_config": {"cpus": 2, "mem_limit": "1g", "attributes": ["a:b"], "instance_type": "m5.large"},
    });
    let request = read_with(&body, &defaults()).unwrap();
    assert_eq!(request.id.unwrap().as_str(), "neutral");
    let spec = request.spec;
    assert_eq!(spec.command, Command::Shell("echo hi".to_owned()));
    assert_eq!((spec.cpus, spec.mem), (2.0, 512.0));
    assert_eq!(spec.attributes, ["a:b"]);
    assert_eq!(spec.executor_config.members()["instance_type"], "m5.large");
    let key = spec.key.unwrap();
    assert_eq!((key.run_id.as_str(), key.try_number, key.map_index), ("r", 2, -1));
}

#[test]
fn string_command_runs_in_the_shell_of_agent_or_image() {
    let body = json!({"command": "echo hi"});
    let shell = read_with(&body, &defaults()).unwrap();
    assert_eq!(shell.spec.command, Command::Shell("echo hi".to_owned()));
    let defaults = Settings {
        command_shell: false,
        ..defaults()
    };
    let args = read_with(&body, &defaults).unwrap();
    assert_eq!(
        args.spec.command,
        Command::Args(["/bin/sh", "-c", "echo hi"].map(str::to_owned).to_vec())
    );
}

#[test]
fn missing_command_is_reported_separately() {
    let body = json!({"image": "a"});
    assert!(read(body.as_object().unwrap(), &defaults()).is_none());
}

#[test]
fn all_errors_are_reported_together() {
    let body = json!({"command": [1, [2]], "cpus": -1, "mem_limit": "much", "environment": {"A": {"b": 1}, "": "x"},
        "attributes": ["a:b", 3], "ports": [70000], "airflow_task_id": ""});
    let problems = read_with(&body, &defaults()).unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "/airflow_task_id",
            "/attributes(1)",
            "/command(1)",
            "/cpus",
            "/environment/",
            "/environment/A",
            "/mem_limit",
            "/ports(0)"
        ]
    );
    // An error never shows the value of a variable.
    assert!(
        !problems
            .iter()
            .any(|problem| problem.to_string().contains("\"b\""))
    );
}

#[test]
fn each_invalid_field_has_an_error() {
    for (body, path, expected) in [
        (json!({"command": 1}), "/command", "a list of strings"),
        (json!({"command": "  "}), "/command", "an empty string"),
        (json!({"command": [], "cpus": "many"}), "/cpus", "at least 0"),
        (json!({"command": [], "cpus": -0.1}), "/cpus", "at least 0"),
        (json!({"command": [], "disk": -1}), "/disk", "at least 0"),
        (
            json!({"command": [], "image": ""}),
            "/image",
            "a non-empty string",
        ),
        (
            json!({"command": [], "force_pull": "yes"}),
            "/force_pull",
            "true or false",
        ),
        (
            json!({"command": [], "environment": []}),
            "/environment",
            "an object",
        ),
        (
            json!({"command": [], "attributes": "a:b"}),
            "/attributes",
            "expected a list",
        ),
        (
            json!({"command": [], "volumes": ["x"]}),
            "/volumes(0)",
            "expected a string such as",
        ),
        (
            json!({"command": [], "container_type": "LXC"}),
            "/container_type",
            "CONTAINER",
        ),
        (
            json!({"command": [], "container_sock": true}),
            "/container_sock",
            "container_sock is not configured",
        ),
        (
            json!({"command": [], "priority": 1.5}),
            "/priority",
            "is 1.5; expected a whole number",
        ),
        (
            json!({"command": [], "priority": 2_147_483_648_u64}),
            "/priority",
            "to 2147483647",
        ),
        (json!({"command": [], "priority": "high"}), "/priority", "whole"),
        (
            json!({"command": [], "workflow_key": {"dag_id": "d"}}),
            "/workflow_key",
            "task_id",
        ),
        (
            json!({"command": [], "executor_config": 1}),
            "/executor_config",
            "an object",
        ),
        (
            json!({"command": [], "executor_config": {"cpus": -1}}),
            "/executor_config/cpus",
            "at least",
        ),
    ] {
        let problems = read_with(&body, &defaults()).unwrap_err();
        assert_eq!(problems.len(), 1, "{body}: {problems:?}");
        assert_eq!(problems[0]["path"], path, "{body}");
        assert!(
            problems[0]["errors"][0].as_str().unwrap().contains(expected),
            "{problems:?}"
        );
    }
}

#[test]
fn nul_character_is_rejected_with_its_field() {
    for (body, path, expected) in [
        (
            json!({"command": ["a", "a\u{0}b"]}),
            "/command(1)",
            "contains a NUL character",
        ),
        (
            json!({"command": "a\u{0}b"}),
            "/command",
            "contains a NUL character",
        ),
        (
            json!({"command": [], "environment": {"A": "secret\u{0}"}}),
            "/environment/A",
            "contains a NUL character",
        ),
        (
            json!({"command": [], "environment": {"A\u{0}": "b"}}),
            "/environment/A\u{0}",
            "contains `=` or NUL",
        ),
        (
            json!({"command": [], "labels": {"A": "b\u{0}"}}),
            "/labels/A",
            "contains a NUL character",
        ),
        (
            json!({"command": [], "user": "root\u{0}"}),
            "/user",
            "contains a NUL character",
        ),
        (
            json!({"command": [], "image": "a\u{0}"}),
            "/image",
            "contains a NUL character",
        ),
    ] {
        let problems = read_with(&body, &defaults()).unwrap_err();
        assert_eq!(problems.len(), 1, "{body}: {problems:?}");
        assert_eq!(problems[0]["path"], path, "{body}");
        let error = problems[0]["errors"][0].as_str().unwrap();
        // The value of a variable may be a secret.
        assert!(error.contains(expected) && !error.contains("secret"), "{error}");
    }
}

#[test]
fn zero_amounts_are_accepted() {
    for zero in [json!(0), json!(0.0), json!("0")] {
        let body = json!({"command": [], "cpus": zero, "mem_limit": zero, "disk": zero, "gpus": zero});
        let spec = read_with(&body, &defaults()).unwrap().spec;
        assert_eq!(
            (spec.cpus, spec.mem, spec.disk, spec.gpus),
            (0.0, 0.0, 0.0, 0.0),
            "{zero}"
        );
    }
}

#[test]
fn image_is_required_with_containers() {
    let body = json!({"command": ["true"]});
    let problems = read_with(&body, &Settings::default()).unwrap_err();
    assert_eq!(problems[0]["path"], "/image");
    let without = Settings {
        containers: false,
        ..Settings::default()
    };
    assert!(read_with(&body, &without).is_ok());
    let problems = read_with(&json!({"command": []}), &without).unwrap_err();
    assert_eq!(problems[0]["path"], "/command");
}

#[test]
fn request_keys_are_limited() {
    let longest = "k".repeat(MAX_REQUEST_KEY_BYTES);
    for (key, ok) in [
        (json!("one"), true),
        (json!(longest), true),
        (json!(format!("{longest}k")), false),
        (json!(""), false),
        (json!("a\nb"), false),
        (json!(7), false),
    ] {
        let read = read_with(&json!({"command": [], "request_key": key}), &defaults());
        assert_eq!(read.is_ok(), ok, "{key}");
        match read {
            Ok(request) => assert_eq!(request.request_key.as_deref(), key.as_str()),
            Err(details) => {
                assert_eq!(details[0]["path"], "/request_key");
                assert!(
                    details[0]["errors"][0]
                        .as_str()
                        .unwrap()
                        .contains("1 to 200 bytes")
                );
            }
        }
    }
}

#[test]
fn field_set_under_both_of_its_names_is_returned_with_the_ignored_name() {
    let body = json!({"command": ["true"], "image": "i", "workflow_task_id": "a", "airflow_task_id": "b"});
    let request = read(body.as_object().unwrap(), &Settings::default())
        .unwrap()
        .unwrap();
    assert_eq!(request.id.unwrap().as_str(), "a");
    assert_eq!(request.ignored, [["workflow_task_id", "airflow_task_id"]]);
}
