//! Tables of definitions: their translation and defaults, what is shown, and the rules by theme.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use serde_json::{Value, json};

use super::volume_tests::{dvdi, volume};
use super::{App, DefinitionSettings, Invalid, read, rules};
use crate::ids::SpecId;
use crate::settings::Feature;
use crate::testing::settings;
use crate::time::Moment;
use transom_web::Problems;

fn define(body: &Value, settings: &DefinitionSettings) -> Result<App, Problems> {
    let mut update = read(body).map_err(|invalid| match invalid {
        Invalid::Shape(problems) | Invalid::Rules(problems) => problems,
    })?;
    let app = update.apply(SpecId::parse("/a").unwrap(), None, settings, Moment::now());
    update.broken.extend(rules::check(&app, settings));
    if update.broken.is_empty() {
        Ok(app)
    } else {
        Err(update.broken)
    }
}

/// A definition that runs a command, with additional members.
pub(super) fn with(more: &Value) -> Value {
    let mut body = json!({"cmd": "sleep 1"});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    body
}

pub(super) fn shown(more: &Value) -> Value {
    let app = define(&with(more), &settings()).unwrap_or_else(|found| panic!("{more}: {found:?}"));
    let shown = serde_json::to_value(&app).unwrap();
    let stored: App = serde_json::from_value(shown.clone()).unwrap();
    assert_eq!(stored, app, "the stored form is parsed to the same app");
    shown
}

#[track_caller]
pub(super) fn rejected(more: &Value, path: &str, text: &str) {
    let found = define(&with(more), &settings()).unwrap_err();
    assert!(
        found.contains(path, text),
        "{more}: {path} {text} not in {found:?}"
    );
}

#[test]
fn deprecated_networks_are_translated() {
    let docker = |network: &str| json!({"type": "DOCKER", "docker": {"image": "i", "network": network}});
    for (more, networks) in [
        (json!({"container": docker("HOST")}), json!([{"mode": "host"}])),
        (
            json!({"container": docker("BRIDGE")}),
            json!([{"mode": "container/bridge"}]),
        ),
        (
            json!({"ipAddress": {"networkName": "n", "labels": {"k": "v"}}}),
            json!([{"mode": "container", "name": "n", "labels": {"k": "v"}}]),
        ),
        (
            json!({"ipAddress": {"networkName": "n"}, "container": docker("USER")}),
            json!([{"mode": "container", "name": "n"}]),
        ),
        (
            json!({"ipAddress": {"networkName": "mesos-bridge"}}),
            json!([{"mode": "container/bridge"}]),
        ),
        (json!({}), json!([{"mode": "host"}])),
    ] {
        let shown = shown(&more);
        assert_eq!(shown["networks"], networks, "{more}");
        assert_eq!(shown.get("ipAddress"), None);
        assert_eq!(shown.pointer("/container/docker/network"), None);
    }
}

#[test]
fn ports_are_shown_where_the_network_has_them() {
    let mapping = |host: Value| {
        let mut mapping = json!({"containerPort": 0, "servicePort": 0, "name": "default", "protocol": "tcp"});
        if !host.is_null() {
            mapping["hostPort"] = host;
        }
        json!([mapping])
    };
    let named = json!([{"mode": "container", "name": "n"}]);
    let bridge = json!([{"mode": "container/bridge"}]);
    for (more, definitions, mappings) in [
        (
            json!({}),
            json!([{"port": 0, "name": "default", "protocol": "tcp"}]),
            Value::Null,
        ),
        (json!({"portDefinitions": []}), json!([]), Value::Null),
        (
            json!({"portDefinitions": [], "container": {"type": "MESOS", "portMappings": []}}),
            json!([]),
            Value::Null,
        ),
        (json!({"networks": bridge}), Value::Null, mapping(json!(0))),
        (json!({"networks": named}), Value::Null, mapping(Value::Null)),
        (
            json!({"networks": named, "container": {"type": "MESOS", "portMappings": []}}),
            Value::Null,
            json!([]),
        ),
    ] {
        let shown = shown(&more);
        assert_eq!(
            shown.get("portDefinitions").cloned().unwrap_or_default(),
            definitions,
            "{more}"
        );
        let found = shown.pointer("/container/portMappings");
        assert_eq!(found.cloned().unwrap_or_default(), mappings, "{more}");
    }
}

#[test]
fn deprecated_ports_become_definitions_or_mappings() {
    let host = shown(&json!({"ports": [8080, 0]}));
    assert_eq!(host["portDefinitions"][0]["port"], 8080);
    let docker = json!({
        "type": "DOCKER",
        "docker": {"image": "i", "network": "BRIDGE", "portMappings": [{"containerPort": 80}]},
    });
    let bridge = shown(&json!({"ports": [0, 0], "container": docker}));
    let mappings = bridge["container"]["portMappings"].as_array().unwrap();
    assert_eq!(mappings.len(), 2, "as many as ports");
    assert_eq!(
        (&mappings[0]["containerPort"], &mappings[0]["hostPort"]),
        (&json!(80), &json!(0))
    );
    let discovery = json!({"networkName": "n", "discovery": {"ports": [{"number": 80, "name": "http"}]}});
    let discovered = shown(&json!({"ipAddress": discovery}));
    let mapping = &discovered["container"]["portMappings"][0];
    assert_eq!(
        (&mapping["containerPort"], &mapping["name"]),
        (&json!(80), &json!("http"))
    );
}

#[test]
fn deprecated_fields_exclude_current_ones() {
    let docker = |more: Value| {
        let mut docker = json!({"image": "i"});
        docker
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"type": "DOCKER", "docker": docker})
    };
    let bridge = json!([{"mode": "container/bridge"}]);
    let address = json!({"networkName": "n"});
    let discovery = json!({"networkName": "n", "discovery": {"ports": [{"name": "http"}]}});
    for (more, path, text) in [
        (
            json!({"networks": bridge, "container": docker(json!({"network": "BRIDGE"}))}),
            "/",
            "must not specify both container.docker.network and networks",
        ),
        (
            json!({"networks": bridge, "ipAddress": address}),
            "/",
            "must not specify both networks and ipAddress",
        ),
        (
            json!({"ipAddress": address, "ports": [1]}),
            "/",
            "cannot specify both an IP address and port",
        ),
        (json!({"ports": [1, 1]}), "/", "ports must be unique"),
        (
            json!({"ipAddress": discovery, "container": docker(json!({}))}),
            "/ipAddress",
            "ipAddress/discovery is not allowed for Docker containers",
        ),
        (
            json!({"container": docker(json!({"network": "NONE"}))}),
            "/container/docker/network",
            "unsupported docker network type",
        ),
        (
            json!({"container": docker(json!({"credential": {"principal": "p"}}))}),
            "/container/docker/credential",
            "must be empty",
        ),
        (
            json!({"container": {"type": "MESOS", "docker": {"image": "i", "network": "HOST"}}}),
            "/container/docker/network",
            "must be empty",
        ),
        (
            json!({"container": {"type": "MESOS", "docker": {"image": "i", "parameters": [{"key": "k", "value": "v"}]}}}),
            "/container/docker/parameters",
            "must be empty",
        ),
    ] {
        rejected(&more, path, text);
    }
}

#[test]
fn networks_and_ports_follow_the_rules() {
    let network = |name: &str| json!({"mode": "container", "name": name});
    let mappings = |networks: Value, mappings: Value| json!({"networks": networks, "container": {"type": "MESOS", "portMappings": mappings}});
    let bridge = json!({"mode": "container/bridge"});
    for (more, path, text) in [
        (
            json!({"networks": [{"mode": "host", "labels": {"a": "b"}}]}),
            "/networks",
            "Host networks may not have names or labels",
        ),
        (
            json!({"networks": [network("n"), network("n")]}),
            "/networks",
            "Duplicate networks are not allowed",
        ),
        (
            json!({"networks": [bridge, network("n")]}),
            "/networks",
            "May specify a single host network, single bridge network, or else 1-to-n container networks",
        ),
        (
            json!({"networks": [{}]}),
            "/networks",
            "Network name must be specified when container network is selected.",
        ),
        (
            json!({"networks": [{"name": "N"}]}),
            "/networks(0)/name",
            "must fully match regular expression",
        ),
        (
            json!({"networks": [{"mode": "none"}]}),
            "/networks(0)/mode",
            "error.unknown.enum.literal",
        ),
        (
            mappings(json!([bridge]), json!([{"name": "a"}, {"name": "a"}])),
            "/container/portMappings",
            "Port names must be unique.",
        ),
        (
            mappings(json!([network("a"), network("b")]), json!([{"hostPort": 0}])),
            "/container/portMappings(0)",
            "networkNames must be a single item list when hostPort is specified",
        ),
        (
            mappings(
                json!([network("a"), network("b")]),
                json!([{"networkNames": ["c"]}]),
            ),
            "/container/portMappings(0)/networkNames(0)",
            "is not one of (a,b)",
        ),
        (
            mappings(json!([bridge]), json!([{"containerPort": 70_000}])),
            "/container/portMappings(0)/containerPort",
            "error.max",
        ),
        (
            json!({"portDefinitions": [{"port": 70_000}]}),
            "/portDefinitions(0)/port",
            "got 70000, expected 65535 or less",
        ),
        (
            json!({"ports": [70_000]}),
            "/ports(0)",
            "got 70000, expected 65535 or less",
        ),
        (
            json!({"ports": [1.5]}),
            "/ports(0)",
            "got 1.5, expected a whole number",
        ),
    ] {
        rejected(&more, path, text);
    }
    // Ports that do not apply are dropped.
    let dropped = shown(&json!({"container": {"type": "MESOS", "portMappings": [{"containerPort": 80}]}}));
    assert_eq!(dropped["container"].get("portMappings"), None);
    assert_eq!(dropped["portDefinitions"][0]["port"], 0);
    let dropped = shown(&json!({
        "portDefinitions": [{"port": 10_104}, {"port": 10_105}],
        "container": {"type": "DOCKER", "docker": {
            "image": "i", "network": "BRIDGE", "portMappings": [{"containerPort": 8080, "servicePort": 10_104}],
        }},
    }));
    assert_eq!(dropped.get("portDefinitions"), None);
    let mapped = dropped["container"]["portMappings"].as_array().unwrap();
    assert_eq!((mapped.len(), &mapped[0]["containerPort"]), (1, &json!(8080)));
    let several = mappings(
        json!([network("a"), network("b")]),
        json!([{"hostPort": 0, "networkNames": ["a"]}, {"containerPort": 80}]),
    );
    shown(&several);
}

#[test]
fn containers_follow_the_rules() {
    let mesos = |more: Value| {
        let mut container = json!({"type": "MESOS"});
        container
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"container": container})
    };
    for (more, path, text) in [
        (json!({"container": {}}), "/container/docker", "not defined"),
        (
            mesos(json!({"docker": {}})),
            "/container/docker/image",
            "is undefined",
        ),
        (
            mesos(json!({"docker": {"image": ""}})),
            "/container/docker/image",
            "error.minLength",
        ),
        (
            mesos(json!({"type": "LXC"})),
            "/container/type",
            "error.unknown.enum.literal",
        ),
        (
            mesos(json!({"docker": {"image": "i", "privileged": true}})),
            "/container/docker/privileged",
            "not supported with the Mesos containerizer",
        ),
        (
            mesos(json!({"appc": {"image": "i"}})),
            "/container/appc",
            "not supported",
        ),
        (
            mesos(json!({"linuxInfo": {"seccomp": {}}})),
            "/container/linuxInfo/seccomp",
            "Seccomp unconfined must be true when Profile is NOT defined",
        ),
        (
            mesos(json!({"linuxInfo": {"ipcInfo": {"mode": "SHARE_PARENT", "shmSize": 1}}})),
            "/container/linuxInfo/ipcInfo",
            "ipcInfo shmSize can NOT be set when mode is SHARE_PARENT",
        ),
        (
            mesos(json!({"linuxInfo": {"ipcInfo": {}}})),
            "/container/linuxInfo/ipcInfo/mode",
            "is undefined",
        ),
        (
            json!({"container": {"docker": {"image": "i"}, "linuxInfo": {}}}),
            "/container/linuxInfo",
            "not supported with the Docker containerizer",
        ),
        (
            json!({"gpus": 1, "container": {"docker": {"image": "i"}}}),
            "/gpus",
            "GPU resources only work with the Mesos containerizer",
        ),
    ] {
        rejected(&more, path, text);
    }
    let shown = shown(&json!({"container": {"docker": {"image": "i"}}}));
    assert_eq!(
        shown["container"],
        json!({
            "type": "DOCKER", "volumes": [],
            "docker": {"image": "i", "forcePullImage": false, "privileged": false, "parameters": []},
        })
    );
}

#[test]
fn resident_apps_follow_the_rules() {
    let persistent = volume(&json!({"containerPath": "d", "mode": "RW", "persistent": {"size": 1}}));
    let resident = |more: Value| {
        let mut body = persistent.clone();
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    for (more, path, text) in [
        (json!({}), "/role", "Resident apps cannot have the role *"),
        (
            json!({"unreachableStrategy": {}}),
            "/unreachableStrategy",
            "unreachableStrategy must be disabled for resident tasks",
        ),
        (
            json!({"role": "dev", "acceptedResourceRoles": ["dev"]}),
            "/acceptedResourceRoles",
            "A resident app must have `acceptedResourceRoles = [\"*\"]`.",
        ),
    ] {
        rejected(&resident(more), path, text);
    }
    rejected(
        &json!({"residency": {}}),
        "/",
        "App must contain persistent volumes and define residency",
    );
}

#[test]
fn features_are_required_by_name() {
    let none = DefinitionSettings {
        features: [].into(),
        ..settings()
    };
    let secret = json!({"s": {"source": "/s"}});
    for (more, path, feature) in [
        (json!({"secrets": secret}), "/secrets", Feature::Secrets),
        (
            volume(&json!({"containerPath": "/a", "secret": "s"})),
            "/container/volumes(0)",
            Feature::Secrets,
        ),
        (
            volume(&dvdi("v", "RW", &json!({}))),
            "/container/volumes(0)",
            Feature::ExternalVolumes,
        ),
        (json!({"gpus": 1}), "/gpus", Feature::GpuResources),
    ] {
        let name = feature.name();
        let text = format!("Feature {name} is not enabled. Enable with --enable_features {name})");
        let found = define(&with(&more), &none).unwrap_err();
        assert!(found.contains(path, &text), "{more}: {found:?}");
        shown(&more);
    }
}

#[test]
fn other_fields_follow_the_rules() {
    for (more, path, text) in [
        (
            json!({"resourceLimits": {"mem": "much"}}),
            "/resourceLimits/mem",
            "error.unknown.enum.literal",
        ),
        (
            json!({"executorResources": {"mem": 1}}),
            "/executorResources/mem",
            "error.min",
        ),
        (
            json!({"executor": "a//b"}),
            "/executor",
            "must fully match regular expression",
        ),
        (json!({"secrets": {"s": {}}}), "/secrets/s/source", "is undefined"),
        (
            json!({"secrets": {"s": null}}),
            "/secrets/s",
            "error.expected.jsobject",
        ),
        (json!({"env": {"A": 1}}), "/env/A", "error.expected.jsstring"),
        (
            json!({"env": {"A": {"secret": "s"}}}),
            "/env/A/secret",
            "references an undefined secret",
        ),
        (
            json!({"env": {"A=B": "1"}}),
            "/env/keys(0)",
            "must not contain '='",
        ),
        (
            json!({"env": {"A": "x\u{0}y"}}),
            "/env/A",
            "must not contain a NUL character",
        ),
        (
            json!({"labels": {"a": "b", "c\u{0}": "d"}}),
            "/labels/keys(1)",
            "must not contain a NUL character",
        ),
        (
            json!({"cmd": "echo a\u{0}b"}),
            "/cmd",
            "must not contain a NUL character",
        ),
        (
            json!({"container": {"type": "MESOS", "volumes": [{"containerPath": "a\u{0}", "hostPath": "/", "mode": "RO"}]}}),
            "/container/volumes(0)/containerPath",
            "must not contain a NUL character",
        ),
        (
            json!({"constraints": [["rack", "MAX_PER", 2]]}),
            "/constraints(0)(2)",
            "got 2, expected a string",
        ),
        (
            json!({"constraints": ["rack"]}),
            "/constraints(0)",
            "got the string \"rack\", expected a list",
        ),
        (
            json!({"instances": 1.5}),
            "/instances",
            "got 1.5, expected a whole number",
        ),
        (
            json!({"tty": "yes"}),
            "/tty",
            "got the string \"yes\", expected true or false",
        ),
        (json!({"tty": "yes"}), "/tty", "error.expected.jsboolean"),
        (
            json!({"residency": {"taskLostBehavior": "FORGET"}}),
            "/residency/taskLostBehavior",
            "error.unknown.enum.literal",
        ),
        (
            json!({"labels": {"DCOS_MIGRATION_API_VERSION": "v2"}}),
            "/",
            "DCOS_PACKAGE_FRAMEWORK_NAME and DCOS_MIGRATION_API_PATH must be defined",
        ),
    ] {
        rejected(&more, path, text);
    }
    let shown = shown(&json!({
        "env": {"A": {"secret": "s"}, "B": "b"}, "secrets": {"s": {"source": "/s"}}, "tty": true, "gpus": 1,
        "resourceLimits": {"cpus": 2, "mem": "unlimited"},
    }));
    assert_eq!(shown["env"], json!({"A": {"secret": "s"}, "B": "b"}));
    assert_eq!(shown["resourceLimits"], json!({"cpus": 2, "mem": "unlimited"}));
    assert_eq!((&shown["tty"], &shown["gpus"]), (&json!(true), &json!(1)));
}

#[test]
fn change_of_the_network_moves_the_ports() {
    let settings = DefinitionSettings {
        default_network_name: Some("default-net".to_owned()),
        ..settings()
    };
    let host = define(
        &with(&json!({"portDefinitions": [{"port": 80}], "requirePorts": true})),
        &settings,
    )
    .unwrap();
    let change = |app: &App, more: Value| {
        let mut update = read(&more).unwrap();
        let next = update.apply(app.id.clone(), Some(app), &settings, app.version.plus_millis(1));
        assert!(update.broken.is_empty(), "{:?}", update.broken);
        assert!(rules::check(&next, &settings).is_empty());
        next
    };
    let moved = change(&host, json!({"networks": [{"mode": "container"}]}));
    assert_eq!(moved.networks[0].name.as_deref(), Some("default-net"));
    assert_eq!(
        (moved.port_definitions.as_ref(), moved.port_mappings().len()),
        (None, 1)
    );
    assert!(!moved.require_ports);
    let back = change(&moved, json!({"networks": [{"mode": "host"}]}));
    assert_eq!(
        (back.port_definitions().len(), back.port_mappings().len()),
        (1, 0)
    );
}
