//! The form in which definitions are stored and shown.

use serde_json::{Value, json};

use super::{accepted, define, merged};
use crate::model::pod::{Pod, PodResources};
use crate::model::{CheckPort, Constraint, DefinitionSettings, UnreachableStrategy};
use crate::testing::settings;

/// The shown form of a pod without its version. Parsing it results in the same pod.
fn shown(pod: &Pod) -> Value {
    let mut shown = json!(pod);
    let stored: Pod = serde_json::from_value(shown.clone()).unwrap();
    assert_eq!(&stored, pod, "the stored form is parsed to the same pod");
    shown.as_object_mut().unwrap().remove("version");
    shown
}

#[test]
fn omitted_fields_have_the_defaults_of_upstream() {
    let pod = accepted(&json!({}), &json!({}));
    let expected = json!({
        "id": "/p",
        "containers": [{"name": "ct1", "resources": {"cpus": 1, "mem": 128, "disk": 0, "gpus": 0}}],
        "networks": [{"mode": "host"}],
        "scaling": {"kind": "fixed", "instances": 1},
        "scheduling": {
            "backoff": {"backoff": 1, "backoffFactor": 1.15, "maxLaunchDelay": 300},
            "upgrade": {"minimumHealthCapacity": 1, "maximumOverCapacity": 1},
            "placement": {},
            "killSelection": "YOUNGEST_FIRST",
            "unreachableStrategy": {"inactiveAfterSeconds": 0, "expungeAfterSeconds": 0},
        },
        "executorResources": {"cpus": 0.1, "mem": 32, "disk": 10},
        "role": "*",
    });
    assert_eq!(shown(&pod), expected);
    let empty = json!({
        "labels": {}, "environment": {}, "secrets": {}, "volumes": [], "networks": [], "scheduling": {},
        "legacySharedCgroups": false, "scaling": {"kind": "fixed"}, "unknown": 1,
    });
    let nothing = json!({
        "endpoints": [], "environment": {}, "volumeMounts": [], "artifacts": [], "labels": {}, "exec": null,
    });
    assert_eq!(shown(&accepted(&empty, &nothing)), expected);
}

#[test]
fn checks_and_endpoints_have_their_defaults() {
    let container = json!({
        "endpoints": [{"name": "web"}], "check": {"http": {"endpoint": "web"}},
        "healthCheck": {"http": {"endpoint": "web", "path": "/h"}},
        "artifacts": [{"uri": "http://f/a.tgz"}],
    });
    let pod = shown(&accepted(&json!({}), &container));
    let expected = json!({
        "endpoints": [{"name": "web", "hostPort": 0, "protocol": ["tcp"]}],
        "check": {
            "http": {"endpoint": "web", "scheme": "HTTP"},
            "intervalSeconds": 60, "timeoutSeconds": 20, "delaySeconds": 15,
        },
        "healthCheck": {
            "http": {"endpoint": "web", "path": "/h", "scheme": "HTTP"}, "gracePeriodSeconds": 300,
            "intervalSeconds": 60, "maxConsecutiveFailures": 3, "timeoutSeconds": 20, "delaySeconds": 15,
        },
        "artifacts": [{"uri": "http://f/a.tgz", "extract": true, "executable": false, "cache": false}],
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&pod["containers"][0][field], value, "{field}");
    }
}

/// A definition with every member, in the form in which it is shown.
fn full() -> Value {
    let check = json!({
        "tcp": {"endpoint": "web"}, "intervalSeconds": 5, "timeoutSeconds": 2, "delaySeconds": 0,
    });
    json!({
        "id": "/shop/web",
        "labels": {"tier": "front"},
        "user": "www",
        "environment": {"A": "b", "KEY": {"secret": "key"}},
        "containers": [
            {
                "name": "app",
                "exec": {"command": {"argv": ["run", "-v"]}, "overrideEntrypoint": true},
                "resources": {"cpus": 0.5, "mem": 64, "disk": 1, "gpus": 1},
                "resourceLimits": {"cpus": "unlimited", "mem": 128},
                "endpoints": [{
                    "name": "web", "containerPort": 80, "hostPort": 8080, "protocol": ["http", "udp"],
                    "labels": {"VIP_0": "1.2.3.4:80"}, "networkNames": ["weave"],
                }],
                "linuxInfo": {"seccomp": {"unconfined": true}, "ipcInfo": {"mode": "PRIVATE", "shmSize": 8}},
                "image": {
                    "kind": "DOCKER", "id": "shop/web:1", "pullConfig": {"secret": "key"}, "forcePull": true,
                    "labels": {"arch": "amd64"},
                },
                "environment": {"C": "d"},
                "user": "app",
                "healthCheck": {
                    "exec": {"command": {"shell": "true"}}, "gracePeriodSeconds": 1, "intervalSeconds": 3,
                    "maxConsecutiveFailures": 0, "timeoutSeconds": 2, "delaySeconds": 0,
                },
                "volumeMounts": [
                    {"name": "shared", "mountPath": "/shared"},
                    {"name": "host", "mountPath": "/host", "readOnly": true},
                    {"name": "key", "mountPath": "/key", "readOnly": false},
                ],
                "artifacts": [{
                    "uri": "http://f/a", "extract": false, "executable": true, "cache": true, "destPath": "a",
                }],
                "labels": {"role": "main"},
                "lifecycle": {"killGracePeriodSeconds": 2.5},
                "tty": true,
            },
            {
                "name": "helper", "exec": {"command": {"shell": "sleep 1"}},
                "resources": {"cpus": 1, "mem": 32, "disk": 0, "gpus": 2}, "check": check,
                "endpoints": [{"name": "admin", "containerPort": 0, "protocol": ["tcp"]}, {
                    "name": "web-2", "containerPort": 81, "protocol": ["tcp"],
                }],
            },
        ],
        "secrets": {"key": {"source": "/key"}},
        "volumes": [{"name": "shared"}, {"name": "host", "host": "/srv"}, {"name": "key", "secret": "key"}],
        "networks": [{"name": "weave", "mode": "container", "labels": {"k": "v"}}],
        "scaling": {"kind": "fixed", "instances": 3},
        "scheduling": {
            "backoff": {"backoff": 0.5, "backoffFactor": 2, "maxLaunchDelay": 60},
            "upgrade": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0.25},
            "placement": {
                "constraints": [
                    {"fieldName": "@hostname", "operator": "UNIQUE"},
                    {"fieldName": "rack", "operator": "MAX_PER", "value": "2"},
                ],
                "acceptedResourceRoles": ["*"],
            },
            "killSelection": "OLDEST_FIRST",
            "unreachableStrategy": "disabled",
        },
        "executorResources": {"cpus": 0.2, "mem": 64, "disk": 20},
        "role": "*",
        "linuxInfo": {"ipcInfo": {"mode": "SHARE_PARENT"}},
        "check": check,
    })
}

#[test]
fn complete_definition_is_shown_as_posted() {
    let mut body = full();
    body["containers"][1]["check"]["tcp"]["endpoint"] = json!("admin");
    let pod = define(&body, &settings()).unwrap();
    assert_eq!(shown(&pod), body);
    let limited = merged(body.clone(), &json!({"legacySharedCgroups": true}));
    assert!(
        define(&limited, &settings()).is_err(),
        "limits exclude shared control groups"
    );
    body["containers"][0]
        .as_object_mut()
        .unwrap()
        .remove("resourceLimits");
    body["legacySharedCgroups"] = json!(true);
    assert_eq!(shown(&define(&body, &settings()).unwrap()), body);
}

#[test]
fn accessors_read_the_nested_members() {
    let mut body = full();
    body["containers"][1]["check"]["tcp"]["endpoint"] = json!("web-2");
    let mut pod = define(&body, &settings()).unwrap();
    assert_eq!(pod.instances(), 3);
    pod.set_instances(5);
    assert_eq!(
        (pod.instances(), &json!(pod)["scaling"]["instances"]),
        (5, &json!(5))
    );
    let constraint = |fields: &[&str]| Constraint(fields.iter().map(|it| (*it).to_owned()).collect());
    let expected = [
        constraint(&["@hostname", "UNIQUE"]),
        constraint(&["rack", "MAX_PER", "2"]),
    ];
    assert_eq!(pod.constraints(), expected);
    assert_eq!(pod.accepted_resource_roles(), ["*"]);
    assert!(matches!(
        pod.unreachable_strategy(),
        UnreachableStrategy::Disabled(_)
    ));
    assert_eq!((pod.kill_grace_of(0), pod.kill_grace_of(1)), (Some(2.5), None));
    let expected = PodResources {
        cpus: 1.7,
        mem: 160.0,
        disk: 21.0,
        gpus: 3,
    };
    assert_eq!(pod.resources(), expected);
    assert!(!pod.is_resident() && !pod.uses_host_network());
    // The check of the pod belongs to its first container.
    assert_eq!(pod.check_of(0), pod.check.as_ref());
    assert_eq!(pod.check_of(1), pod.containers[1].check.as_ref());
    assert_eq!(pod.check_of(2), None);
    let index = |container| pod.indexed_check_of(container).and_then(|check| check.port());
    assert_eq!(index(0), Some(CheckPort::PortIndex(0)));
    assert_eq!(index(1), Some(CheckPort::PortIndex(1)));
}

#[test]
fn container_network_without_a_name_gets_the_configured_one() {
    let settings = DefinitionSettings {
        default_network_name: Some("weave".to_owned()),
        ..settings()
    };
    let body = json!({
        "id": "/p", "containers": [{"name": "a", "resources": {}}], "networks": [{"mode": "container"}],
    });
    let pod = define(&body, &settings).unwrap();
    assert_eq!(pod.networks[0].name.as_deref(), Some("weave"));
}

#[test]
fn pods_with_persistent_volumes_have_other_defaults() {
    let body = json!({
        "containers": [{
            "name": "a", "resources": {}, "volumeMounts": [{"name": "d", "mountPath": "d"}],
        }],
        "volumes": [{"name": "d", "persistent": {"size": 1}}],
    });
    let pod = crate::testing::pod(&body);
    assert!(pod.is_resident());
    let scheduling = &json!(pod)["scheduling"];
    assert_eq!(
        scheduling["upgrade"],
        json!({"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0})
    );
    assert_eq!(scheduling["unreachableStrategy"], "disabled");
    assert_eq!(
        json!(pod)["volumes"][0],
        json!({"name": "d", "persistent": {"type": "root", "size": 1, "constraints": []}})
    );
}
