//! Relations between members.

use serde_json::{Value, json};

use super::{accepted, merged, problems, rejected, with};
use crate::model::DefinitionSettings;
use crate::settings::Feature;
use crate::testing::settings;

/// A mount of the volume `v`.
fn mounting() -> Value {
    json!({"volumeMounts": [{"name": "v", "mountPath": "/m"}]})
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn containers_follow_the_rules() {
    let health = |check: Value| json!({"endpoints": [{"name": "web"}], "healthCheck": check});
    let limited = |limits: Value| json!({"resources": {"mem": 256}, "resourceLimits": limits});
    let seccomp = json!({"linuxInfo": {"seccomp": {"unconfined": true, "profileName": "p"}}});
    let ipc = json!({"linuxInfo": {"ipcInfo": {"mode": "SHARE_PARENT", "shmSize": 1}}});
    for (container, path, text) in [
        (
            json!({"name": "container"}),
            "/containers(0)/name",
            "equals container",
        ),
        (json!({"user": ""}), "/containers(0)/user", "must not be empty"),
        (
            limited(json!({"mem": 128})),
            "/containers(0)/resourceLimits/mem",
            "resource limit must be greater than or equal to requested resource (256.0)",
        ),
        (
            json!({"environment": {"1A": "a"}}),
            "/containers(0)/environment/1A",
            "must fully match regular expression '^[a-zA-Z_][a-zA-Z0-9_]*$'",
        ),
        (
            json!({"environment": {"": "a"}}),
            "/containers(0)/environment/keys(0)",
            "must not be empty",
        ),
        (
            json!({"environment": {"A".repeat(255): "a"}}),
            &format!("/containers(0)/environment/{}…", "A".repeat(61)),
            "more than 254",
        ),
        (
            json!({"environment": {"A": {"secret": "none"}}}),
            "/containers(0)/environment/A/secret",
            "references an undefined secret",
        ),
        (
            json!({"image": {"kind": "DOCKER", "id": "i", "pullConfig": {"secret": "none"}}}),
            "/containers(0)/image/pullConfig",
            "pullConfig.secret must refer to an existing secret",
        ),
        (
            health(json!({"http": {"endpoint": "web"}, "timeoutSeconds": 60})),
            "/containers(0)/healthCheck/timeoutSeconds",
            "got 60, expected less than 60",
        ),
        (
            health(json!({})),
            "/containers(0)/healthCheck",
            "Only one of http, tcp, or command may be specified",
        ),
        (
            health(json!({"http": {"endpoint": "web"}, "tcp": {"endpoint": "web"}})),
            "/containers(0)/healthCheck",
            "Only one of http, tcp, or command may be specified",
        ),
        (
            health(json!({"tcp": {"endpoint": "other"}})),
            "/containers(0)/healthCheck/tcp/endpoint",
            "contained in the container endpoints",
        ),
        (
            json!({"check": {"http": {"endpoint": "other"}}}),
            "/containers(0)/check/http/endpoint",
            "contained in the container endpoints",
        ),
        (
            json!({"check": {"exec": {"command": {"shell": "true"}}, "timeoutSeconds": 60}}),
            "/containers(0)/check/timeoutSeconds",
            "expected less than",
        ),
        (
            json!({"endpoints": [{"name": "web"}], "check": {"http": {"endpoint": "web", "path": "p"}}}),
            "/containers(0)/check/http/path",
            "must start with /",
        ),
        (
            mounting(),
            "/containers(0)/volumeMounts(0)/name",
            "Referenced Volume in VolumeMount should exist",
        ),
        (
            seccomp,
            "/containers(0)/linuxInfo/seccomp",
            "Seccomp unconfined can NOT be true when Profile is defined",
        ),
        (
            ipc,
            "/containers(0)/linuxInfo/ipcInfo",
            "ipcInfo shmSize can NOT be set when mode is SHARE_PARENT",
        ),
    ] {
        rejected(&json!({}), &container, path, text);
    }
    rejected(
        &json!({"legacySharedCgroups": true}),
        &limited(json!({"mem": "unlimited"})),
        "/containers(0)/resourceLimits",
        "resourceLimits cannot be defined if legacySharedCgroups is enabled",
    );
    accepted(&json!({}), &limited(json!({"mem": "unlimited"})));
    accepted(&json!({}), &health(json!({"tcp": {"endpoint": "web"}})));
}

#[test]
fn strings_and_names_of_pods_have_no_nul_characters() {
    let text = "must not contain a NUL character";
    for (pod, container, path) in [
        (json!({"labels": {"a": "b\0"}}), json!({}), "/labels/a"),
        (json!({"environment": {"A": "\0"}}), json!({}), "/environment/A"),
        (
            json!({"secrets": {"a\0": {"source": "s"}}}),
            json!({}),
            "/secrets/keys(0)",
        ),
        (
            json!({}),
            json!({"exec": {"command": {"shell": "true\0"}}}),
            "/containers(0)/exec/command/shell",
        ),
        (
            json!({}),
            json!({"labels": {"\0": "b"}}),
            "/containers(0)/labels/keys(0)",
        ),
    ] {
        rejected(&pod, &container, path, text);
    }
}

#[test]
fn pods_follow_the_rules() {
    let twice = json!([{"name": "a", "resources": {}}, {"name": "a", "resources": {}}]);
    let own = json!({"exec": {"command": {"shell": "true"}}});
    for (pod, container, path, text) in [
        (json!({"user": ""}), json!({}), "/user", "must not be empty"),
        (
            json!({"environment": {"a-b": "c"}}),
            json!({}),
            "/environment/a-b",
            "must fully match regular expression",
        ),
        (
            json!({"containers": twice}),
            json!({}),
            "/containers",
            "container names must be unique",
        ),
        (
            json!({"volumes": [{"name": "v"}]}),
            json!({}),
            "/volumes(0)",
            "volume must be referenced by at least one container",
        ),
        (
            json!({"volumes": [{"name": "v", "host": ""}]}),
            mounting(),
            "/volumes(0)/host",
            "must not be empty",
        ),
        (
            json!({"volumes": [{"name": "v", "secret": "none"}]}),
            mounting(),
            "/volumes(0)/secret",
            "volume.secret must refer to an existing secret",
        ),
        (
            json!({"networks": [{"mode": "host", "name": "n"}]}),
            json!({}),
            "/networks",
            "Host networks may not have names or labels",
        ),
        (
            json!({"networks": [{}]}),
            json!({}),
            "/networks",
            "Network name must be specified when container network is selected.",
        ),
        (
            json!({"role": "other"}),
            json!({}),
            "/role",
            "got other, expected one of: [*]",
        ),
        (
            json!({"scheduling": {"placement": {"acceptedResourceRoles": ["dev"]}}}),
            json!({}),
            "/acceptedResourceRoles",
            "acceptedResourceRoles can only contain *",
        ),
        (
            json!({"linuxInfo": {"seccomp": {"unconfined": true}}}),
            json!({}),
            "/linuxInfo/seccomp",
            "Seccomp configuration on executor level is not supported",
        ),
        (
            json!({"check": own}),
            json!({"check": own}),
            "/check",
            "which has one already",
        ),
        (
            json!({"check": {"tcp": {"endpoint": "web"}}}),
            json!({}),
            "/check/tcp/endpoint",
            "contained in the container endpoints",
        ),
    ] {
        rejected(&pod, &container, path, text);
    }
    accepted(
        &json!({"check": {"tcp": {"endpoint": "web"}}}),
        &json!({"endpoints": [{"name": "web"}]}),
    );
}

#[test]
fn endpoints_follow_the_rules_of_their_network() {
    let host = json!([{"mode": "host"}]);
    let bridge = json!([{"mode": "container/bridge"}]);
    let one = json!([{"mode": "container", "name": "1"}]);
    let two = json!([{"mode": "container", "name": "1"}, {"mode": "container", "name": "2"}]);
    let first = "/containers(0)/endpoints(0)";
    for (networks, endpoints, path, text) in [
        (
            &host,
            json!([{"name": "a", "containerPort": 80}]),
            "/containers(0)/endpoints(0)/containerPort",
            "is not allowed when using host-mode networking",
        ),
        (
            &one,
            json!([{"name": "a"}, {"name": "b", "hostPort": 0}]),
            "/containers(0)/endpoints(1)/containerPort",
            "is required when using container-mode networking",
        ),
        (
            &host,
            json!([{"name": "a", "protocol": ["tcp", "tcp"]}]),
            "/containers(0)/endpoints(0)/protocol",
            "Duplicate protocols within the same endpoint are not allowed",
        ),
        (
            &two,
            json!([{"name": "a", "containerPort": 80, "hostPort": 0}]),
            first,
            "networkNames must be a single item list when hostPort is specified and more than 1 container network is defined",
        ),
        (
            &two,
            json!([{"name": "a", "containerPort": 80, "networkNames": ["2", "3"]}]),
            "/containers(0)/endpoints(0)/networkNames(1)",
            "is not one of (1,2)",
        ),
        (
            &one,
            json!([{"name": "a", "containerPort": 80, "hostPort": 80, "networkNames": ["1", "2"]}]),
            "/containers(0)/endpoints(0)/networkNames(1)",
            "is not one of (1)",
        ),
        (
            &bridge,
            json!([{"name": "a", "hostPort": 123}, {"name": "b", "hostPort": 123}]),
            "/",
            "host ports must be unique across all containers",
        ),
        (
            &one,
            json!([{"name": "a", "containerPort": 80}, {"name": "b", "containerPort": 80}]),
            "/",
            "container ports must be unique across all containers",
        ),
    ] {
        rejected(
            &json!({"networks": networks}),
            &json!({"endpoints": endpoints}),
            path,
            text,
        );
    }
    for (networks, endpoints, host_port) in [
        (&host, json!([{"name": "a"}]), Some(0)),
        (&bridge, json!([{"name": "a", "containerPort": 80}]), Some(0)),
        (
            &bridge,
            json!([{"name": "a", "containerPort": 0}, {"name": "b", "containerPort": 0}]),
            Some(0),
        ),
        (&one, json!([{"name": "a", "containerPort": 80}]), None),
        (
            &one,
            json!([{"name": "a", "containerPort": 80, "hostPort": 80, "networkNames": ["1"]}]),
            Some(80),
        ),
        (
            &two,
            json!([{"name": "a", "containerPort": 80, "hostPort": 0, "networkNames": ["1"]}]),
            Some(0),
        ),
    ] {
        let pod = accepted(&json!({"networks": networks}), &json!({"endpoints": endpoints}));
        let endpoint = &pod.containers[0].endpoints[0];
        assert_eq!(endpoint.host_port, host_port, "{networks} {endpoints}");
        assert_eq!(endpoint.protocol, ["tcp"]);
    }
}

#[test]
fn features_are_required_by_name() {
    let none = DefinitionSettings {
        features: [].into(),
        ..settings()
    };
    let secrets = json!({"secrets": {"s": {"source": "/s"}}});
    let from_secret = json!({"environment": {"A": {"secret": "s"}}});
    let image = json!({"image": {"kind": "DOCKER", "id": "i", "pullConfig": {"secret": "s"}}});
    let text = |feature: Feature| {
        let name = feature.name();
        format!("Feature {name} is not enabled. Enable with --enable_features {name})")
    };
    let refers = "use of secret-references in the environment requires the secrets feature to be enabled";
    for (pod, container, path, expected) in [
        (&secrets, json!({}), "/secrets", text(Feature::Secrets)),
        (&secrets, json!({}), "/secrets", "must be empty".to_owned()),
        (
            &secrets,
            image.clone(),
            "/containers(0)/image/pullConfig",
            text(Feature::Secrets),
        ),
        (
            &secrets,
            image,
            "/containers(0)/image/pullConfig",
            "must be empty".to_owned(),
        ),
        (
            &secrets,
            from_secret.clone(),
            "/containers(0)/environment",
            refers.to_owned(),
        ),
        (
            &merged(secrets.clone(), &from_secret),
            json!({}),
            "/environment",
            refers.to_owned(),
        ),
        (
            &merged(
                secrets.clone(),
                &json!({"volumes": [{"name": "v", "secret": "s"}]}),
            ),
            mounting(),
            "/volumes(0)",
            text(Feature::Secrets),
        ),
        (
            &json!({}),
            json!({"resources": {"gpus": 1}}),
            "/containers(0)/resources/gpus",
            text(Feature::GpuResources),
        ),
    ] {
        let found = problems(&with(pod, &container), &none);
        assert!(
            found.contains(path, &expected),
            "{path} {expected} not in {found:?}"
        );
        accepted(pod, &container);
    }
}
