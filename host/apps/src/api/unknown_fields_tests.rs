use serde_json::json;

use super::*;

fn found(document: &Value, definition: Definition) -> Vec<(String, Option<String>)> {
    let (fields, more) = unknown_fields(document, definition);
    assert_eq!(more, 0);
    fields
        .into_iter()
        .map(|field| (field.path, field.meant))
        .collect()
}

#[test]
fn misspelt_and_misplaced_fields_are_found_with_those_that_were_meant() {
    use Definition::{App, Group, Pod};
    // Columns: the document, its kind, the path of the unknown field, the field that was meant.
    let table = [
        (
            json!({
                "id": "/t1", "cmd": "x1", "forcePullImage": true,
                "container": {"type": "DOCKER", "docker": {"image": "x:latest"}},
            }),
            App,
            "/forcePullImage",
            Some("/container/docker/forcePullImage"),
        ),
        (
            json!({"app": [{"id": "a", "cmd": "x1"}]}),
            Group,
            "/app",
            Some("/apps"),
        ),
        (json!({"pods": [{"id": "p"}]}), Group, "/pods", None),
        (
            json!({"apps": [{"id": "a", "unreachableStrategy": {"inactiveAfterSecond": 60}}]}),
            Group,
            "/apps(0)/unreachableStrategy/inactiveAfterSecond",
            Some("/apps(0)/unreachableStrategy/inactiveAfterSeconds"),
        ),
        (
            json!([{"id": "a"}, {"id": "b", "healthChecks": [{"protocol": "HTTP", "gracePeriod": 1}]}]),
            App,
            "/(1)/healthChecks(0)/gracePeriod",
            Some("/(1)/healthChecks(0)/gracePeriodSeconds"),
        ),
        (
            json!({"id": "p", "containers": [{"name": "c", "endpoints": [{"name": "e", "hostport": 80}]}]}),
            Pod,
            "/containers(0)/endpoints(0)/hostport",
            Some("/containers(0)/endpoints(0)/hostPort"),
        ),
        (json!({"id": "a", "xyzzy": {"deep": 1}}), App, "/xyzzy", None),
        (
            json!({"id": "a", "healthCheks": []}),
            App,
            "/healthCheks",
            Some("/healthChecks"),
        ),
        (
            json!({"id": "a", "env": {"A": {"secert": "s"}}}),
            App,
            "/env/A/secert",
            Some("/env/A/secret"),
        ),
    ];
    for (document, definition, path, meant) in table {
        let expected = (path.to_owned(), meant.map(str::to_owned));
        assert_eq!(found(&document, definition), [expected], "{document}");
    }
}

#[test]
fn fields_that_are_read_or_that_clients_name_are_known() {
    let app = json!({
        "id": "/a", "cmd": "x", "labels": {"any": "thing"}, "env": {"ANY": "x", "S": {"secret": "s"}},
        "secrets": {"s": {"source": "x"}}, "constraints": [["rack", "LIKE", "r.*"]], "uris": ["http://h/f"], "ports": [0],
        "ipAddress": {"networkName": "n", "discovery": {"ports": []}}, "nothing": null,
        "container": {
            "type": "DOCKER", "volumes": [
                {"containerPath": "/h", "hostPath": "/h", "mode": "RO"},
                {"containerPath": "p", "persistent": {"size": 1}, "mode": "RW"},
                {"containerPath": "/e", "mode": "RW", "external": {
                    "name": "v", "provider": "dvdi", "options": {"dvdi/driver": "rexray", "any/other": "x"},
                }},
            ],
            "docker": {"image": "i", "network": "BRIDGE", "portMappings": [{"containerPort": 80, "labels": {"l": "x"}}],
                "parameters": [{"key": "k", "value": "v"}]},
        },
        "healthChecks": [{"protocol": "COMMAND", "command": {"value": "true"}}],
        "readinessChecks": [{"name": "r", "portName": "p"}],
        "check": {"http": {"path": "/", "portIndex": 0}, "intervalSeconds": 1},
        // What the service adds to a definition that a client reads.
        "version": "2026-01-01T00:00:00.000Z", "versionInfo": {"lastScalingAt": "2026-01-01T00:00:00.000Z"},
        "tasksRunning": 1, "tasksStaged": 0, "tasksHealthy": 0, "tasksUnhealthy": 0, "deployments": [{"id": "d"}],
        "tasks": [{"id": "t"}], "lastTaskFailure": {"state": "TASK_FAILED"},
    });
    assert_eq!(found(&app, Definition::App), []);
    let group = json!({"id": "/", "version": "x", "apps": [app], "groups": [{"id": "g", "pods": []}]});
    assert_eq!(found(&group, Definition::Group), []);
    let pod = json!({
        "id": "/p", "version": "x", "labels": {"a": "b"}, "scaling": {"kind": "fixed", "instances": 2},
        "networks": [{"mode": "host"}], "volumes": [{"name": "v"}, {"name": "h", "host": "/x"}],
        "scheduling": {"placement": {"constraints": [{"fieldName": "rack", "operator": "IS", "value": "r"}]}},
        "containers": [{
            "name": "c", "exec": {"command": {"shell": "x"}}, "image": {"kind": "DOCKER", "id": "i"},
            "resources": {"cpus": 1, "mem": 1}, "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "healthCheck": {"http": {"endpoint": "e", "path": "/"}}, "environment": {"A": "x"},
        }],
    });
    assert_eq!(found(&pod, Definition::Pod), []);
    for odd in [
        json!(null),
        json!("x"),
        json!([1]),
        json!({"container": [1], "env": "x"}),
    ] {
        assert_eq!(found(&odd, Definition::App), [], "{odd}");
    }
}

#[test]
fn report_and_header_are_bounded_and_the_header_is_safe() {
    let mut app = json!({"id": "/a", "cmd": "x"});
    for number in 0..1000 {
        app[format!("x{number}")] = json!(1);
    }
    let (fields, more) = unknown_fields(&app, Definition::App);
    assert_eq!((fields.len(), more), (MAX_FIELDS, 1000 - MAX_FIELDS));
    let header = header_value(&fields, more).unwrap();
    let header = header.to_str().unwrap();
    assert_eq!(header.split(", ").count(), MAX_HEADER_FIELDS);
    assert!(
        header.ends_with(&format!("; more={}", 1000 - MAX_HEADER_FIELDS)),
        "{header}"
    );

    let mut long = json!({"id": "/a", "cmd": "x"});
    for number in 0..16 {
        long[format!("{number:02}\u{e4}{}", "%\r\n,".repeat(10_000))] = json!(1);
    }
    let (fields, more) = unknown_fields(&long, Definition::App);
    assert!(fields.iter().all(|field| field.path.len() <= MAX_NAME_BYTES + 1));
    let header = header_value(&fields, more).unwrap();
    let text = header.to_str().unwrap();
    assert!(
        text.len() < MAX_HEADER_BYTES + 100 && text.contains("; more="),
        "{text}"
    );
    assert!(text.starts_with("/00%C3%A4%25%0D%0A%2C"), "{text}");
    assert_eq!(header_value(&[], 0), None);
}
