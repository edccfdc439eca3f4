//! Members of a wrong type, or outside of their limits.

use serde_json::json;

use super::{problems, rejected};
use crate::testing::settings;

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn members_of_a_wrong_shape_are_reported_with_their_path() {
    let none = json!({});
    for (pod, container, path, text) in [
        (json!({"id": 1}), none.clone(), "/id", "error.expected.jsstring"),
        (json!({"id": "/A"}), none.clone(), "/id", "error.pattern"),
        (
            json!({"id": "some/foo"}),
            none.clone(),
            "/id",
            "Path needs to be absolute",
        ),
        (
            json!({"id": "/p/restart"}),
            none.clone(),
            "/id",
            "reserved keywords",
        ),
        (
            json!({"containers": []}),
            none.clone(),
            "/containers",
            "must not be empty",
        ),
        (
            json!({"containers": null}),
            none.clone(),
            "/containers",
            "undefined",
        ),
        (
            json!({"containers": [{}]}),
            none.clone(),
            "/containers(0)/resources",
            "undefined",
        ),
        (
            none.clone(),
            json!({"name": null}),
            "/containers(0)/name",
            "undefined",
        ),
        (
            none.clone(),
            json!({"name": "A_b"}),
            "/containers(0)/name",
            "error.pattern",
        ),
        (
            none.clone(),
            json!({"name": "a".repeat(64)}),
            "/containers(0)/name",
            "error.maxLength",
        ),
        (
            none.clone(),
            json!({"resources": {"cpus": -1}}),
            "/containers(0)/resources/cpus",
            "error.min",
        ),
        (
            none.clone(),
            json!({"resources": {"gpus": 1.5}}),
            "/containers(0)/resources/gpus",
            "error.expected.jsnumber",
        ),
        (
            none.clone(),
            json!({"exec": {}}),
            "/containers(0)/exec/command",
            "undefined",
        ),
        (
            none.clone(),
            json!({"exec": {"command": {"shell": "a", "argv": ["a"]}}}),
            "/containers(0)/exec/command",
            "exactly one of shell",
        ),
        (
            none.clone(),
            json!({"exec": {"command": {"argv": []}}}),
            "/containers(0)/exec/command",
            "exactly one of shell",
        ),
        (
            none.clone(),
            json!({"image": {"kind": "APPC", "id": "i"}}),
            "/containers(0)/image/kind",
            "error.unknown.enum.literal",
        ),
        (
            none.clone(),
            json!({"image": {"kind": "DOCKER"}}),
            "/containers(0)/image/id",
            "undefined",
        ),
        (
            none.clone(),
            json!({"image": {"kind": "DOCKER", "id": ""}}),
            "/containers(0)/image/id",
            "error.minLength",
        ),
        (
            none.clone(),
            json!({"endpoints": [{}]}),
            "/containers(0)/endpoints(0)/name",
            "undefined",
        ),
        (
            none.clone(),
            json!({"endpoints": [{"name": "a"}, {"name": "b", "hostPort": 65536}]}),
            "/containers(0)/endpoints(1)/hostPort",
            "error.max",
        ),
        (
            none.clone(),
            json!({"endpoints": [{"name": "a", "protocol": []}]}),
            "/containers(0)/endpoints(0)/protocol",
            "error.minLength",
        ),
        (
            none.clone(),
            json!({"endpoints": [{"name": "a", "protocol": "tcp"}]}),
            "/containers(0)/endpoints(0)/protocol",
            "error.expected.jsarray",
        ),
        (
            none.clone(),
            json!({"volumeMounts": [{"name": "v"}]}),
            "/containers(0)/volumeMounts(0)/mountPath",
            "undefined",
        ),
        (
            none.clone(),
            json!({"artifacts": [{"uri": "u".repeat(1025)}]}),
            "/containers(0)/artifacts(0)/uri",
            "error.maxLength",
        ),
        (
            none.clone(),
            json!({"artifacts": [{"uri": "u", "destPath": ""}]}),
            "/containers(0)/artifacts(0)/destPath",
            "error.minLength",
        ),
        (
            none.clone(),
            json!({"lifecycle": {"killGracePeriodSeconds": -1}}),
            "/containers(0)/lifecycle/killGracePeriodSeconds",
            "error.min",
        ),
        (
            none.clone(),
            json!({"healthCheck": {"http": {}}}),
            "/containers(0)/healthCheck/http/endpoint",
            "undefined",
        ),
        (
            none.clone(),
            json!({"check": {"http": {"endpoint": "a", "scheme": "HTTPS"}}}),
            "/containers(0)/check/http/scheme",
            "only HTTP",
        ),
        (
            none.clone(),
            json!({"check": {}}),
            "/containers(0)/check",
            "exactly one of http",
        ),
        (
            json!({"scaling": {"kind": "elastic"}}),
            none.clone(),
            "/scaling/kind",
            "error.unknown.enum.literal",
        ),
        (
            json!({"scaling": {"instances": 1}}),
            none.clone(),
            "/scaling/kind",
            "undefined",
        ),
        (
            json!({"scaling": {"kind": "fixed", "instances": -1}}),
            none.clone(),
            "/scaling/instances",
            "error.min",
        ),
        (
            json!({"scheduling": {"upgrade": {"maximumOverCapacity": 1.5}}}),
            none.clone(),
            "/scheduling/upgrade/maximumOverCapacity",
            "error.max",
        ),
        (
            json!({"scheduling": {"upgrade": {"minimumHealthCapacity": -0.1}}}),
            none.clone(),
            "/scheduling/upgrade/minimumHealthCapacity",
            "error.min",
        ),
        (
            json!({"scheduling": {"backoff": {"backoffFactor": -1}}}),
            none.clone(),
            "/scheduling/backoff/backoffFactor",
            "error.min",
        ),
        (
            json!({"scheduling": {"placement": {"constraints": [{"fieldName": "h", "operator": "NEAR"}]}}}),
            none.clone(),
            "/scheduling/placement/constraints(0)/operator",
            "error.unknown.enum.literal",
        ),
        (
            json!({"scheduling": {"placement": {"constraints": [{"operator": "UNIQUE"}]}}}),
            none.clone(),
            "/scheduling/placement/constraints(0)/fieldName",
            "undefined",
        ),
        (
            json!({"scheduling": {"killSelection": "RANDOM"}}),
            none.clone(),
            "/scheduling/killSelection",
            "error.unknown.enum.literal",
        ),
        (
            json!({"scheduling": {"unreachableStrategy": {"inactiveAfterSeconds": 2, "expungeAfterSeconds": 1}}}),
            none.clone(),
            "/scheduling/unreachableStrategy",
            "inactiveAfterSeconds (2) must be less or equal to expungeAfterSeconds, which is 1",
        ),
        (
            json!({"executorResources": {"mem": 16}}),
            none.clone(),
            "/executorResources/mem",
            "error.min",
        ),
        (json!({"role": ""}), none.clone(), "/role", "error.minLength"),
        (
            json!({"version": "yesterday"}),
            none.clone(),
            "/version",
            "error.expected.date",
        ),
        (
            json!({"volumes": [{}]}),
            none.clone(),
            "/volumes(0)/name",
            "undefined",
        ),
        (
            json!({"volumes": [{"name": "v", "persistent": {}}]}),
            none.clone(),
            "/volumes(0)/persistent/size",
            "undefined",
        ),
        (
            json!({"environment": {"A": 1}}),
            none,
            "/environment/A",
            "error.expected.jsstring",
        ),
    ] {
        rejected(&pod, &container, path, text);
    }
    let all = problems(
        &json!({"id": 1, "containers": [{"name": "a"}], "user": 2}),
        &settings(),
    );
    for path in ["/id", "/containers(0)/resources", "/user"] {
        assert!(all.contains(path, ""), "{path} not in {all:?}");
    }
}
