//! Pods with persistent volumes.

use serde_json::{Value, json};

use super::{accepted, merged, problems, with};
use crate::ids::SpecId;
use crate::model::DefinitionSettings;
use crate::model::pod::{Pod, read_pod, rules};
use crate::model::rules::tests::{cases, replay};
use crate::testing::settings;
use crate::time::Moment;

/// The settings of a service whose role is `dev`.
fn of_dev() -> DefinitionSettings {
    DefinitionSettings {
        role: "dev".to_owned(),
        ..settings()
    }
}

/// The pod with a persistent volume from which upstream's cases start.
fn resident(scheduling: &Value, container: &Value) -> Value {
    let strategies = json!({
        "upgrade": {"minimumHealthCapacity": 0, "maximumOverCapacity": 0}, "unreachableStrategy": "disabled",
    });
    let container = merged(
        json!({
            "resources": {"cpus": 1, "mem": 128}, "endpoints": [{"name": "ep1", "hostPort": 1}],
            "volumeMounts": [{"name": "vol1", "mountPath": "vol1-mount", "readOnly": false}],
        }),
        container,
    );
    let volumes = json!([{"name": "vol1", "persistent": {"type": "root", "size": 1}}]);
    let pod = json!({"role": "dev", "volumes": volumes, "scheduling": merged(strategies, scheduling)});
    with(&pod, &container)
}

fn resident_pod(body: &Value) -> Pod {
    let input = read_pod(body).unwrap_or_else(|invalid| panic!("{body}: {invalid:?}"));
    input.pod(SpecId::parse("/p").unwrap(), &of_dev(), Moment::now())
}

#[test]
fn pods_with_persistent_volumes_are_valid() {
    for scheduling in [
        json!({}),
        json!({"unreachableStrategy": null}),
        json!({"upgrade": null}),
        json!({"placement": {"acceptedResourceRoles": ["*"]}}),
    ] {
        let found = problems(&resident(&scheduling, &json!({})), &of_dev());
        assert!(found.is_empty(), "{scheduling}: {found:?}");
    }
}

#[test]
fn resident_pods_follow_the_rules() {
    for (scheduling, more, path, text) in [
        (
            json!({"unreachableStrategy": {}}),
            json!({}),
            "/",
            "unreachableStrategy must be disabled for pods with persistent volumes",
        ),
        (
            json!({"upgrade": {"maximumOverCapacity": 0.1}}),
            json!({}),
            "/upgrade/maximumOverCapacity",
            "got 0.1, expected 0.0",
        ),
        (
            json!({"placement": {"acceptedResourceRoles": ["dev"]}}),
            json!({}),
            "/acceptedResourceRoles",
            "A resident pod must have `acceptedResourceRoles = [\"*\"]`.",
        ),
        (
            json!({}),
            json!({"role": "*"}),
            "/role",
            "Resident pods cannot have the role *",
        ),
        (
            json!({}),
            json!({"volumes": [{"name": "vol1", "persistent": {"size": 0}}]}),
            "/volumes(0)/persistent/size",
            "expected more than 0",
        ),
    ] {
        let body = merged(resident(&scheduling, &json!({})), &more);
        let found = problems(&body, &of_dev());
        assert!(found.contains(path, text), "{body}: {found:?}");
    }
}

#[test]
fn changes_of_resident_pods_match_the_fixtures() {
    let mut replayed = 0;
    for case in cases(include_str!("../../../../tests/fixtures/resident-update.json")) {
        if case["input"]["what"] != "pod" {
            continue;
        }
        let (field, value) = case["input"]["change"]
            .as_str()
            .unwrap()
            .split_once(" -> ")
            .unwrap();
        let mut body = resident(&json!({}), &json!({}));
        body["containers"][0]["resources"][field] = json!(value.parse::<u32>().unwrap());
        let old = resident_pod(&resident(&json!({}), &json!({})));
        let found = rules::check_update(&old, &resident_pod(&body), true);
        replay(case["id"].as_str().unwrap(), &case, &found);
        replayed += 1;
    }
    assert_eq!(replayed, 3);
}

#[test]
fn reserved_resources_of_a_pod_cannot_change() {
    let old = resident_pod(&resident(&json!({}), &json!({})));
    let changed = |container: Value| resident(&json!({}), &container);
    let larger = json!({"volumes": [{"name": "vol1", "persistent": {"size": 2}}]});
    for (next, force, expected) in [
        (
            changed(json!({"exec": {"command": {"shell": "true"}}})),
            false,
            None,
        ),
        (
            changed(json!({"resources": {"cpus": 3, "mem": 128}})),
            true,
            Some(("/", "cpus cannot be updated if a pod has persistent volumes")),
        ),
        (
            changed(json!({"endpoints": [{"name": "ep1", "hostPort": 2}]})),
            true,
            Some((
                "/",
                "host ports cannot be updated if a pod has persistent volumes",
            )),
        ),
        (
            merged(changed(json!({})), &larger),
            true,
            Some(("/", "persistent volumes cannot be updated")),
        ),
        (
            merged(changed(json!({})), &json!({"volumes": []})),
            true,
            Some(("/", "persistent volumes cannot be updated")),
        ),
        (
            resident(&json!({"upgrade": {}}), &json!({})),
            true,
            Some(("/upgradeStrategy/maximumOverCapacity", "got 1.0, expected 0.0")),
        ),
        (
            merged(changed(json!({})), &json!({"role": "other"})),
            false,
            Some(("/role", "only be changed with force")),
        ),
        (merged(changed(json!({})), &json!({"role": "other"})), true, None),
    ] {
        let found = rules::check_update(&old, &resident_pod(&next), force);
        match expected {
            None => assert!(found.is_empty(), "{next}: {found:?}"),
            Some((path, text)) => assert!(found.contains(path, text), "{next}: {found:?}"),
        }
    }
    let plain = |cpus: u32| accepted(&json!({}), &json!({"resources": {"cpus": cpus}}));
    assert!(rules::check_update(&plain(1), &plain(2), false).is_empty());
}
