//! The effects of a changed definition on the instances of a pod.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Pod, PodCheck, PodContainer};
use crate::model::Effect;
use crate::model::effects::{Field, digest, fields};
use crate::settings::Checks;

impl Pod {
    /// The effect of a change from `self` to `next`: the greatest one of the changed fields.
    pub(crate) fn effect_of(&self, next: &Self, checks: Checks) -> Effect {
        let changed = FIELDS.iter().filter(|field| !(field.same)(self, next));
        let effects = changed.map(|field| match field.name {
            "containers" => self.effect_of_containers(next),
            _ => field.effect,
        });
        let effect = effects.max().unwrap_or(Effect::Nothing);
        let agent_checks = |pod: &Self| -> Vec<Option<PodCheck>> {
            let containers = 0..pod.containers.len();
            containers
                .map(|at| pod.agent_check_of(at, checks).cloned())
                .collect()
        };
        // A check that the agent makes is part of the task.
        if agent_checks(self) == agent_checks(next) {
            effect
        } else {
            Effect::Replace
        }
    }

    /// The same as [`Self::effect_of`] for the containers. Instances are replaced when a container
    /// is added, removed, renamed or moved.
    fn effect_of_containers(&self, next: &Self) -> Effect {
        if self.containers.len() != next.containers.len() {
            return Effect::Replace;
        }
        let pairs = self.containers.iter().zip(&next.containers);
        let changed = pairs.flat_map(|(old, new)| {
            let fields = CONTAINER_FIELDS.iter();
            fields.filter(move |field| !(field.same)(old, new))
        });
        changed.map(|field| field.effect).max().unwrap_or(Effect::Nothing)
    }

    /// Identifies the configuration: a digest of the fields whose change replaces instances.
    pub(crate) fn config(&self, checks: Checks) -> String {
        let document = serde_json::to_value(self).unwrap_or_default();
        let mut part = BTreeMap::new();
        for field in FIELDS.iter().filter(|field| field.effect == Effect::Replace) {
            if let Some(value) = document.get(field.name) {
                part.insert(field.name, value.clone());
            }
        }
        part.insert("containers", self.container_configs(checks));
        digest(&part)
    }

    fn container_configs(&self, checks: Checks) -> Value {
        let containers = self.containers.iter().enumerate();
        containers
            .map(|(at, container)| {
                let document = serde_json::to_value(container).unwrap_or_default();
                let fields = CONTAINER_FIELDS.iter();
                let mut part: Map<String, Value> = fields
                    .filter(|field| field.effect == Effect::Replace)
                    .filter_map(|field| Some((field.name.to_owned(), document.get(field.name)?.clone())))
                    .collect();
                if let Some(check) = self.agent_check_of(at, checks) {
                    let check = serde_json::to_value(check).unwrap_or_default();
                    part.insert("check".to_owned(), check);
                }
                Value::Object(part)
            })
            .collect()
    }

    /// The check of a container, if its agent makes it.
    pub(crate) fn agent_check_of(&self, container: usize, checks: Checks) -> Option<&PodCheck> {
        self.check_of(container)
            .filter(|check| !check.is_made_by_daemon(checks))
    }
}

/// Every field of [`Pod`]. The effect of `containers` is that of the changed fields of containers.
static FIELDS: &[Field<Pod>] = fields![Pod;
    "id" id Nothing,
    "labels" labels InPlace,
    "version" version Nothing,
    "user" user Replace,
    "environment" environment Replace,
    "containers" containers Replace,
    "secrets" secrets Replace,
    "volumes" volumes Replace,
    "networks" networks Replace,
    "scaling" scaling Scale,
    "scheduling" scheduling InPlace,
    "executorResources" executor_resources Replace,
    "role" role Replace,
    "linuxInfo" linux_info Replace,
    "legacySharedCgroups" legacy_shared_cgroups Replace,
    "check" check InPlace,
    "versionInfo" version_info Nothing,
];

/// Every field of [`PodContainer`].
static CONTAINER_FIELDS: &[Field<PodContainer>] = fields![PodContainer;
    "name" name Replace,
    "exec" exec Replace,
    "resources" resources Replace,
    "resourceLimits" resource_limits Replace,
    "endpoints" endpoints Replace,
    "linuxInfo" linux_info Replace,
    "image" image Replace,
    "environment" environment Replace,
    "user" user Replace,
    "healthCheck" health_check Replace,
    "check" check InPlace,
    "volumeMounts" volume_mounts Replace,
    "artifacts" artifacts Replace,
    "labels" labels InPlace,
    "lifecycle" lifecycle InPlace,
    "tty" tty Replace,
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;
    use crate::model::VersionInfo;
    use crate::model::effects::tests::{PODS, documented, word};
    use crate::settings::CheckRunner;
    use crate::testing::pod;

    /// A definition that has every field, and a container that has every field.
    fn full() -> Pod {
        let mut pod = pod(&json!({
            "id": "/p", "labels": {"l": "1"}, "user": "u", "environment": {"K": "v"},
            "secrets": {"s": {"source": "/s"}}, "volumes": [{"name": "v"}], "linuxInfo": {},
            "legacySharedCgroups": true, "check": {"tcp": {"endpoint": "web"}},
            "containers": [{
                "name": "a", "exec": {"command": {"shell": "true"}}, "resources": {},
                "resourceLimits": {"mem": "unlimited"}, "endpoints": [{"name": "web"}], "linuxInfo": {},
                "image": {"kind": "DOCKER", "id": "i"}, "environment": {"K": "v"}, "user": "u",
                "healthCheck": {"tcp": {"endpoint": "web"}}, "check": {"http": {"endpoint": "web"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}], "artifacts": [{"uri": "http://f"}],
                "labels": {"l": "1"}, "lifecycle": {"killGracePeriodSeconds": 1}, "tty": true,
            }],
        }));
        pod.version_info = Some(VersionInfo {
            last_scaling_at: pod.version,
            last_config_change_at: pod.version,
        });
        pod
    }

    /// The document of `pod` with a change of that field, at the pod or at its container.
    fn changed(document: &Value, field: &str) -> Value {
        let other = match field {
            "id" | "name" | "role" | "user" => json!("/c"),
            "exec" => json!({"command": {"shell": "false"}}),
            "resources" => json!({"cpus": 9, "mem": 1, "disk": 1, "gpus": 0}),
            "executorResources" => json!({"cpus": 1, "mem": 64, "disk": 0}),
            "scaling" => json!({"kind": "fixed", "instances": 7}),
            "version" => json!("2018-01-01T00:00:00.000Z"),
            "containers" => json!([]),
            "scheduling" => {
                let mut scheduling = document["scheduling"].clone();
                scheduling["killSelection"] = json!("OLDEST_FIRST");
                scheduling
            }
            "legacySharedCgroups" | "tty" => json!(false),
            "networks" => json!([{"mode": "container/bridge"}]),
            _ => Value::Null,
        };
        let mut changed = document.clone();
        if other.is_null() {
            changed.as_object_mut().unwrap().remove(field);
        } else {
            changed[field] = other;
        }
        changed
    }

    fn by_agents() -> Checks {
        Checks {
            network_from: CheckRunner::Agent,
            exec_from: CheckRunner::Agent,
            ..Checks::default()
        }
    }

    fn names<T>(fields: &[Field<T>]) -> Vec<&'static str> {
        let mut names: Vec<&str> = fields.iter().map(|field| field.name).collect();
        names.sort_unstable();
        names
    }

    fn members(document: &Value) -> Vec<&str> {
        let members = document.as_object().unwrap().keys();
        let mut members: Vec<&str> = members.map(String::as_str).collect();
        members.sort_unstable();
        members
    }

    #[test]
    fn every_field_has_an_effect() {
        let full = json!(full());
        assert_eq!(names(FIELDS), members(&full));
        assert_eq!(names(CONTAINER_FIELDS), members(&full["containers"][0]));
    }

    #[test]
    fn documented_effects_are_those_of_the_tables() {
        fn rows<T>(fields: &[Field<T>]) -> Vec<(&'static str, &'static str)> {
            let row = |field: &Field<T>| match field.name {
                "check" => "in place, unless agents make the check",
                "containers" => "as its [fields](#containers-of-a-pod)",
                _ => word(field.effect),
            };
            fields.iter().map(|field| (field.name, row(field))).collect()
        }
        assert_eq!(documented(PODS, "## Fields of a pod"), rows(FIELDS));
        assert_eq!(documented(PODS, "## Containers of a pod"), rows(CONTAINER_FIELDS));
    }

    #[test]
    fn change_of_one_field_has_the_effect_of_that_field() {
        let full = full();
        let document = json!(full);
        let effect = |changed: Value, name: &str| {
            let other: Pod = serde_json::from_value(changed).unwrap();
            assert_ne!(other, full, "{name}");
            let effect = full.effect_of(&other, Checks::default());
            let same = full.config(Checks::default()) == other.config(Checks::default());
            assert_eq!(same, effect != Effect::Replace, "{name}: the configuration");
            effect
        };
        for field in FIELDS {
            let found = effect(changed(&document, field.name), field.name);
            assert_eq!(found, field.effect, "{}", field.name);
        }
        for field in CONTAINER_FIELDS {
            let mut other = document.clone();
            other["containers"][0] = changed(&document["containers"][0], field.name);
            let found = effect(other, field.name);
            assert_eq!(found, field.effect, "containers: {}", field.name);
        }
        assert_eq!(full.effect_of(&full, by_agents()), Effect::Nothing);
    }

    #[test]
    fn check_of_the_agent_replaces_instances() {
        let full = full();
        let without = Pod {
            check: None,
            ..full.clone()
        };
        let none = Pod {
            containers: vec![PodContainer {
                check: None,
                ..full.containers[0].clone()
            }],
            ..without.clone()
        };
        assert_eq!(full.effect_of(&none, Checks::default()), Effect::InPlace);
        // The check of the container replaces that of the pod.
        for (old, new) in [(&full, &none), (&none, &full), (&full, &without)] {
            assert_eq!(old.effect_of(new, by_agents()), Effect::Replace);
            assert_ne!(old.config(by_agents()), new.config(by_agents()));
            assert_eq!(old.config(Checks::default()), new.config(Checks::default()));
        }
        // The same check in the other place does not change the task.
        let moved = Pod {
            check: without.containers[0].check.clone(),
            ..none.clone()
        };
        assert_eq!(without.effect_of(&moved, by_agents()), Effect::InPlace);
        assert_eq!(without.config(by_agents()), moved.config(by_agents()));
    }

    #[test]
    fn reordered_containers_replace_instances() {
        let containers = |names: [&str; 2]| {
            let containers = names.map(|name| json!({"name": name, "resources": {}}));
            pod(&json!({"containers": containers}))
        };
        let (one, other) = (containers(["a", "b"]), containers(["b", "a"]));
        let other = Pod {
            version: one.version,
            ..other
        };
        assert_eq!(one.effect_of(&other, Checks::default()), Effect::Replace);
    }
}
