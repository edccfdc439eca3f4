//! Definitions of apps, field by field.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use serde_json::{Value, json};
use transom_testkit::marathon_state::{Message, pair, resource};

use super::super::tests::NEW;
use super::app;

fn message() -> Message {
    Message::default()
}

/// A small app.
pub(super) fn small(version: &str, instances: u64) -> Message {
    let environment = message().nested(1, pair("KEY", "value"));
    let command = message().text(3, "./api --port $PORT0").nested(2, environment);
    message()
        .text(1, "/web/api")
        .nested(2, command)
        .number(3, instances)
        .nested(4, resource("cpus", 0.5))
        .nested(4, resource("mem", 128.0))
        .nested(4, resource("disk", 0.0))
        .nested(4, resource("gpus", 0.0))
        .text(8, "")
        .text(11, version)
}

/// A container with every field.
fn full_container() -> Message {
    let pull = message().nested(2, message().number(1, 1).nested(2, message().text(1, "pull")));
    let linux = message()
        .nested(1, message().text(1, "strict").number(2, 0))
        .nested(2, message().number(1, 2).number(2, 64));
    let mapping = message()
        .number(1, 0)
        .number(2, 80)
        .text(3, "tcp,udp")
        .text(4, "http");
    let external = message()
        .number(1, 5)
        .text(2, "data")
        .text(3, "dvdi")
        .nested(4, pair("dvdi/driver", "rexray"));
    let volume = |path: &str, mode: u64| message().text(1, path).number(3, mode);
    message()
        .number(1, 2)
        .nested(4, message().text(1, "nginx").number(3, 1).nested(4, pull))
        .nested(
            6,
            mapping.nested(5, pair("a", "b")).number(6, 10001).text(7, "net"),
        )
        .nested(2, volume("h", 2).text(2, "/srv"))
        .nested(2, volume("e", 1).nested(6, external.number(5, 1)))
        .nested(2, volume("s", 2).nested(7, message().text(1, "key")))
        .nested(7, linux)
}

/// An app with every field.
fn full_app() -> Message {
    let uri = message()
        .text(1, "http://x/a.tgz")
        .number(2, 1)
        .number(3, 0)
        .number(4, 1)
        .text(5, "a");
    let command = message()
        .text(3, "run")
        .number(6, 0)
        .text(5, "ops")
        .text(7, "run")
        .text(7, "-v")
        .nested(1, uri);
    let exec = message()
        .number(1, 2)
        .nested(8, message().number(6, 1).text(3, "true"));
    let readiness = message()
        .text(1, "ready")
        .number(2, 1)
        .text(3, "/r")
        .text(4, "http")
        .number(5, 30_000);
    message()
        .text(1, "/web/api")
        .nested(2, command)
        .number(3, 2)
        .nested(4, resource("gpus", 2.0))
        .nested(7, message().text(1, "rack").number(2, 3).text(3, "2"))
        .text(8, "/bin/x")
        .text(11, NEW)
        .nested(12, exec)
        .nested(12, message().number(1, 6).number(10, 8080))
        .nested(15, message().real(1, 0.5))
        .text(16, "/pair")
        .nested(19, full_container())
        .nested(22, message().text(1, "ops").text(1, "*"))
        .nested(
            28,
            readiness
                .number(6, 5_000)
                .number(7, 200)
                .number(7, 204)
                .number(8, 1),
        )
        .nested(29, message().text(1, "key").text(2, "/path"))
        .nested(
            30,
            message()
                .number(1, 1)
                .text(2, "KEY")
                .nested(3, message().text(1, "key")),
        )
        .number(31, 9_000)
        .nested(32, message())
        .number(33, 2)
        .nested(
            34,
            message().number(1, 2).text(2, "net").nested(3, pair("c", "d")),
        )
        .nested(35, message())
        .nested(36, resource("cpus", 0.1))
        .nested(37, message().number(1, 1).number(6, 99))
        .text(38, "ops")
        .nested(39, message().real(1, f64::INFINITY).real(2, 512.0))
}

fn container_of_the_api() -> Value {
    json!({
        "type": "MESOS",
        "docker": {"image": "nginx", "forcePullImage": true, "pullConfig": {"secret": "pull"}},
        "linuxInfo": {"seccomp": {"profileName": "strict", "unconfined": false}, "ipcInfo": {"mode": "SHARE_PARENT", "shmSize": 64}},
        "portMappings": [{"hostPort": 0, "containerPort": 80, "protocol": "tcp,udp", "name": "http", "labels": {"a": "b"},
            "servicePort": 10001, "networkNames": ["net"]}],
        "volumes": [
            {"containerPath": "h", "mode": "RO", "hostPath": "/srv"},
            {"containerPath": "e", "mode": "RW", "external": {"size": 5, "name": "data", "provider": "dvdi",
                "options": {"dvdi/driver": "rexray"}, "shared": true}},
            {"containerPath": "s", "secret": "key"},
        ],
    })
}

#[test]
fn every_field_of_an_app_has_the_form_of_the_api() {
    let read = app::document(&super::message(&full_app().bytes()).unwrap()).unwrap();
    let health = json!([
        {"protocol": "COMMAND", "command": {"value": "true"}, "gracePeriodSeconds": 15, "intervalSeconds": 10,
         "timeoutSeconds": 20, "maxConsecutiveFailures": 3, "delaySeconds": 15, "ipProtocol": "IPv4"},
        {"protocol": "MESOS_TCP", "port": 8080, "gracePeriodSeconds": 15, "intervalSeconds": 10,
         "timeoutSeconds": 20, "maxConsecutiveFailures": 3, "delaySeconds": 15, "ipProtocol": "IPv4"},
    ]);
    let mut expected = json!({
        "id": "/web/api", "version": NEW, "args": ["run", "-v"], "user": "ops", "instances": 2, "gpus": 2,
        "fetch": [{"uri": "http://x/a.tgz", "executable": true, "extract": false, "cache": true, "destPath": "a"}],
        "constraints": [["rack", "GROUP_BY", "2"]], "executor": "/bin/x", "dependencies": ["/pair"], "storeUrls": [],
        "upgradeStrategy": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 1.0}, "requirePorts": false,
        "backoffSeconds": 1, "backoffFactor": 1.15, "maxLaunchDelaySeconds": 3600, "labels": {},
        "acceptedResourceRoles": ["ops", "*"], "secrets": {"key": {"source": "/path"}}, "env": {"KEY": {"secret": "key"}},
        "readinessChecks": [{"name": "ready", "protocol": "HTTPS", "path": "/r", "portName": "http",
            "intervalSeconds": 30, "timeoutSeconds": 5, "httpStatusCodesForReady": [200, 204], "preserveLastResponse": true}],
        "taskKillGracePeriodSeconds": 9, "unreachableStrategy": "disabled", "killSelection": "OLDEST_FIRST",
        "networks": [{"mode": "container", "name": "net", "labels": {"c": "d"}}], "tty": true, "role": "ops",
        "executorResources": {"cpus": 0.1}, "resourceLimits": {"cpus": "unlimited", "mem": 512.0},
        "check": {"intervalSeconds": 60, "timeoutSeconds": 20, "delaySeconds": 15, "tcp": {"port": 99}},
    });
    expected["container"] = container_of_the_api();
    expected["healthChecks"] = health;
    assert_eq!(read, expected);
}

#[test]
fn absent_fields_have_the_defaults_of_marathon() {
    let plain = app::document(&super::message(&small(NEW, 1).bytes()).unwrap()).unwrap();
    assert_eq!(
        (
            &plain["cmd"],
            &plain["args"],
            &plain["env"],
            &plain["networks"],
            &plain["portDefinitions"]
        ),
        (
            &json!("./api --port $PORT0"),
            &json!([]),
            &json!({"KEY": "value"}),
            &json!([{"mode": "host"}]),
            &json!([])
        )
    );
}

#[test]
fn what_an_app_cannot_keep_is_rejected_by_name() {
    let container = |field: u64, value: Message| message().number(1, 2).nested(field, value);
    let volume = |field: u64| container(2, message().text(1, "v").number(3, 1).nested(field, message()));
    let docker = message().text(1, "nginx").number(2, 2);
    for (change, expected) in [
        (
            message().number(6, 8080),
            "its ports has the form of a Marathon before 1.5",
        ),
        (message().nested(10, message()), "its container has the form"),
        (message().nested(25, message()), "its ipAddress has the form"),
        (message().nested(19, container(5, message())), "AppC"),
        (
            message().nested(19, container(3, docker)),
            "network of a Marathon before 1.5",
        ),
        (
            message().nested(19, container(4, message().nested(2, message()))),
            "credential",
        ),
        (
            message().nested(19, container(4, message().nested(4, message()))),
            "names no secret",
        ),
        (message().nested(19, volume(8)), "CSI volume"),
        (message().nested(19, message().number(1, 9)), "has the type 9"),
        (
            message().nested(19, container(7, message().nested(2, message().number(1, 5)))),
            "5 is not a known IPC mode",
        ),
        (
            message().nested(7, message().text(1, "a").number(2, 99)),
            "99 is not a known operator",
        ),
        (
            message().nested(12, message().number(1, 7)),
            "7 is not a known protocol",
        ),
        (message().nested(12, message().number(1, 2)), "not for a shell"),
        (
            message().nested(12, message().number(1, 0).text(12, "http")),
            "names a port",
        ),
        (
            message().nested(30, message().number(1, 0).text(2, "A")),
            "unknown reference",
        ),
        (message().number(33, 3), "3 is not a known killSelection"),
        (message().nested(34, message().number(1, 0)), "unknown mode"),
        (message().nested(37, message().number(1, 3)), "the protocol 3"),
        (
            message().nested(4, resource("gpus", 0.5)),
            "0.5 is not a number of GPUs",
        ),
        (
            message().nested(4, resource("cpus", f64::NAN)),
            "NaN is not a quantity",
        ),
        (message().number(23, u64::MAX >> 1), "is not a time"),
    ] {
        let data = [small(NEW, 1).bytes(), change.bytes()].concat();
        let error = app::document(&super::message(&data).unwrap()).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}
