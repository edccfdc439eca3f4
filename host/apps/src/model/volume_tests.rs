//! Tables of volumes: their rules, what is shown, and the defaults that depend on them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::definition_tests::{rejected, shown, with};
use super::read;
use crate::ids::SpecId;
use crate::testing::settings;
use crate::time::Moment;

/// A definition with one volume.
pub(super) fn volume(volume: &Value) -> Value {
    json!({"container": {"type": "MESOS", "volumes": [volume]}, "secrets": {"s": {"source": "/s"}}})
}

pub(super) fn dvdi(path: &str, mode: &str, external: &Value) -> Value {
    let mut all = json!({"name": "v", "provider": "dvdi", "options": {"dvdi/driver": "rexray"}});
    all.as_object_mut()
        .unwrap()
        .extend(external.as_object().unwrap().clone());
    json!({"containerPath": path, "mode": mode, "external": all})
}

fn csi(options: &Value) -> Value {
    let mut all = json!({
        "pluginName": "nfs", "capability": {"accessMode": "SINGLE_NODE_WRITER", "accessType": "mount"},
    });
    all.as_object_mut()
        .unwrap()
        .extend(options.as_object().unwrap().clone());
    json!({"containerPath": "/v", "mode": "RW", "external": {"name": "v", "provider": "csi", "options": all}})
}

#[test]
fn host_and_persistent_volumes_follow_the_rules() {
    let persistent = |more: Value| {
        let mut all = json!({"size": 10});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"containerPath": "data", "mode": "RW", "persistent": all})
    };
    let constraints = |constraint: Value| persistent(json!({"type": "path", "constraints": [constraint]}));
    for (wrong, path, text) in [
        (
            json!({"containerPath": "/a", "mode": "RW"}),
            "/hostPath",
            "undefined",
        ),
        (
            json!({"hostPath": "/a", "mode": "RW"}),
            "/containerPath",
            "undefined",
        ),
        (
            json!({"containerPath": "/a", "hostPath": "/a"}),
            "/mode",
            "undefined",
        ),
        (
            json!({"containerPath": "/a", "hostPath": "", "mode": "RW"}),
            "/hostPath",
            "error.minLength",
        ),
        (
            json!({"containerPath": "/a", "hostPath": "/a", "mode": "rw"}),
            "/mode",
            "error.unknown.enum.literal",
        ),
        (
            json!({"containerPath": "/a", "secret": "other"}),
            "",
            "volume.secret must refer to an existing secret",
        ),
        (
            persistent(json!({"size": 0})),
            "/persistent/size",
            "expected more than 0",
        ),
        (
            json!({"containerPath": "a/b", "mode": "RO", "persistent": {"size": 1}}),
            "/containerPath",
            "value must not contain \"/\"",
        ),
        (
            json!({"containerPath": "..", "mode": "RO", "persistent": {"size": 1}}),
            "/mode",
            "must be equal to RW",
        ),
        (
            persistent(json!({"constraints": [["path", "LIKE", "x"]]})),
            "/persistent",
            "Constraints on root volumes are not supported",
        ),
        (
            persistent(json!({"type": "mount", "maxSize": 5})),
            "/persistent",
            "Max size must be larger than size",
        ),
        (
            constraints(json!(["path", "UNIQUE", ""])),
            "/persistent/constraints(0)",
            "Operator must be one of LIKE, UNLIKE",
        ),
        (
            constraints(json!(["path", "LIKE", "("])),
            "/persistent/constraints(0)",
            "Invalid regular expression",
        ),
        (
            constraints(json!(["rack", "LIKE", "a"])),
            "/persistent/constraints(0)",
            "Unsupported constraint rack,LIKE,a",
        ),
        (
            constraints(json!(["path", "NEAR", "a"])),
            "/persistent/constraints(0)",
            "unknown constraint operator NEAR",
        ),
        (
            constraints(json!([])),
            "/persistent/constraints(0)",
            "Missing field and operator",
        ),
    ] {
        rejected(&volume(&wrong), &format!("/container/volumes(0){path}"), text);
    }
}

#[test]
fn volumes_of_drivers_follow_the_rules() {
    for (wrong, path, text) in [
        (
            dvdi("v", "RW", &json!({"provider": "other"})),
            "/external/provider",
            "dvdi",
        ),
        (
            dvdi("v", "RW", &json!({"options": {}})),
            "/external/options(\"dvdi/driver\")",
            "not defined",
        ),
        (
            dvdi("v", "RW", &json!({"options": {"dvdi/driver": "r", "a/b/c": "d"}})),
            "/external/options/keys(0)",
            "must be a name",
        ),
        (dvdi("v", "RO", &json!({})), "/mode", "must be equal to RW"),
        (
            dvdi("..", "RW", &json!({})),
            "/containerPath",
            "must not be one of (., ..)",
        ),
        (
            rexray("dvdi/iops", "b0rked"),
            "/external/options/\"dvdi/iops\"",
            "got \"b0rked\", expected a whole number of 1 or more",
        ),
        (
            rexray("dvdi/iops", "0"),
            "/external/options/\"dvdi/iops\"",
            "expected a whole number",
        ),
        (
            rexray("dvdi/overwritefs", "maybe"),
            "/external/options/\"dvdi/overwritefs\"",
            "expected true or false",
        ),
        (
            rexray("dvdi/volumetype", "-io"),
            "/external/options/\"dvdi/volumetype\"",
            "expected a name",
        ),
        (
            csi(&json!({"pluginName": ""})),
            "/external/options/pluginName",
            "error.minLength",
        ),
        (
            csi(&json!({"capability": {"accessMode": "ANY", "accessType": "mount"}})),
            "/external/options/capability/accessMode",
            "error.unknown.enum.literal",
        ),
        (
            csi(&json!({"nodeStageSecret": {"user": "other"}})),
            "/external/options/nodeStageSecret/user",
            "references an undefined secret",
        ),
    ] {
        rejected(&volume(&wrong), &format!("/container/volumes(0){path}"), text);
    }
}

/// A volume of the driver `rexray` with an option.
fn rexray(option: &str, value: &str) -> Value {
    dvdi(
        "v",
        "RW",
        &json!({"options": {"dvdi/driver": "rexray", option: value}}),
    )
}

#[test]
fn volumes_are_shown_as_defined() {
    for given in [
        json!({"containerPath": "/a", "hostPath": "/b", "mode": "RO"}),
        json!({"containerPath": "/a", "secret": "s"}),
        {
            let mut shown = dvdi("v", "RW", &json!({"size": 5}));
            shown["external"]["shared"] = json!(false);
            shown
        },
        csi(&json!({"volumeContext": {"a": "b"}, "nodePublishSecret": {"k": "s"}})),
    ] {
        assert_eq!(shown(&volume(&given))["container"]["volumes"], json!([given]));
    }
}

#[test]
fn rules_of_driver_volumes_depend_on_containerizer_and_instances() {
    let docker = |volume: Value| json!({"container": {"docker": {"image": "i"}, "volumes": [volume]}});
    let at = |path: &str| format!("/container/volumes(0){path}");
    // Paths are absolute or relative for both containerizers.
    shown(&docker(dvdi("v", "RW", &json!({}))));
    shown(&volume(&dvdi("/v/w", "RW", &json!({}))));
    shown(&volume(&rexray("dvdi/iops", " 100 ")));
    let other = json!({"options": {"dvdi/driver": "other", "dvdi/iops": "any"}});
    shown(&volume(&dvdi("v", "RW", &other)));
    rejected(
        &docker(dvdi(".", "RW", &json!({}))),
        &at("/containerPath"),
        "must not be one of (., ..)",
    );
    rejected(
        &docker(dvdi("/v", "RW", &json!({"size": 1}))),
        &at("/external/size"),
        "must be undefined for Docker containers",
    );
    let options = json!({"options": {"dvdi/driver": "r", "dvdi/iops": "1"}});
    rejected(
        &docker(dvdi("/v", "RW", &options)),
        &at("/external/options"),
        "must only contain dvdi/driver",
    );
    rejected(
        &docker(csi(&json!({}))),
        &at(""),
        "not supported with the Docker containerizer",
    );
    shown(&docker(dvdi("/v", "RO", &json!({}))));
    let mut several = volume(&dvdi("v", "RW", &json!({})));
    several["instances"] = json!(2);
    rejected(&several, "/", "Number of instances is limited to 1");
    let mut doubled = volume(&dvdi("v", "RW", &json!({})));
    doubled["upgradeStrategy"] = json!({"minimumHealthCapacity": 1, "maximumOverCapacity": 1});
    let path = "/upgradeStrategy/maximumOverCapacity";
    rejected(&doubled, path, "got 1.0, expected 0.0");
    let mut shared = volume(&dvdi("v", "RW", &json!({"shared": true})));
    shared["instances"] = json!(2);
    shown(&shared);
    let twice = dvdi("v", "RW", &json!({}));
    let twice = json!({"container": {"type": "MESOS", "volumes": [twice, twice]}});
    rejected(&twice, "/container/volumes", "Volume names must be unique");
}

#[test]
fn volumes_change_the_default_strategies() {
    let strategies = |more: &Value| {
        let mut update = read(&with(more)).unwrap();
        let app = update.apply(SpecId::parse("/a").unwrap(), None, &settings(), Moment::now());
        let shown = serde_json::to_value(app).unwrap();
        (
            shown["upgradeStrategy"].clone(),
            shown["unreachableStrategy"].clone(),
        )
    };
    let zero = json!({"inactiveAfterSeconds": 0, "expungeAfterSeconds": 0});
    let (full, half) = (
        json!({"maximumOverCapacity": 1, "minimumHealthCapacity": 1}),
        json!({"maximumOverCapacity": 0, "minimumHealthCapacity": 0.5}),
    );
    let persistent = volume(&json!({"containerPath": "d", "mode": "RW", "persistent": {"size": 1}}));
    for (more, upgrade, unreachable) in [
        (json!({}), &full, zero.clone()),
        (persistent.clone(), &half, json!("disabled")),
        (volume(&dvdi("v", "RW", &json!({}))), &half, zero.clone()),
        (
            volume(&json!({"containerPath": "/a", "hostPath": "/b", "mode": "RO"})),
            &full,
            zero.clone(),
        ),
    ] {
        assert_eq!(strategies(&more), (upgrade.clone(), unreachable), "{more}");
    }
    let mut chosen = persistent;
    chosen["upgradeStrategy"] = full.clone();
    chosen["unreachableStrategy"] = zero.clone();
    assert_eq!(strategies(&chosen), (full, zero));
}
