//! The app definition in its canonical form, in which it is stored, compared and shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::effects::{Field, digest, fields};
use super::{
    Check, Container, Effect, Engine, EnvValue, ExecutorResources, HealthCheck, Network, NetworkMode,
    PortDefinition, PortMapping, ReadinessCheck, ResourceLimits, SecretDef, Volume,
};
use crate::ids::SpecId;
use crate::settings::Checks;
use crate::time::Moment;

/// A definition of an app, with all defaults and without deprecated fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct App {
    pub(crate) id: SpecId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cmd: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, EnvValue>,
    /// Secrets by the names that the definition uses.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) secrets: BTreeMap<String, SecretDef>,
    pub(crate) instances: u32,
    #[serde(serialize_with = "short_number")]
    pub(crate) cpus: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) mem: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) disk: f64,
    pub(crate) gpus: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_limits: Option<ResourceLimits>,
    pub(crate) executor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) executor_resources: Option<ExecutorResources>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<Container>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tty: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) residency: Option<Residency>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) constraints: Vec<Constraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) fetch: Vec<Artifact>,
    pub(crate) networks: Vec<Network>,
    /// Present exactly in host networking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port_definitions: Option<Vec<PortDefinition>>,
    pub(crate) require_ports: bool,
    pub(crate) backoff_seconds: u32,
    #[serde(serialize_with = "short_number")]
    pub(crate) backoff_factor: f64,
    pub(crate) max_launch_delay_seconds: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<Check>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) health_checks: Vec<HealthCheck>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) readiness_checks: Vec<ReadinessCheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task_kill_grace_period_seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dependencies: Vec<SpecId>,
    pub(crate) upgrade_strategy: UpgradeStrategy,
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) accepted_resource_roles: Vec<String>,
    pub(crate) unreachable_strategy: UnreachableStrategy,
    pub(crate) kill_selection: KillSelection,
    pub(crate) role: String,
    /// The time of this definition.
    pub(crate) version: Moment,
    /// The times of the last changes. Absent in the response to the request that created the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version_info: Option<VersionInfo>,
}

impl App {
    /// Whether tasks use the network of their agent.
    pub(crate) fn uses_host_network(&self) -> bool {
        self.networks
            .iter()
            .all(|network| network.mode == NetworkMode::Host)
    }

    /// The ports in host networking.
    pub(crate) fn port_definitions(&self) -> &[PortDefinition] {
        self.port_definitions.as_deref().unwrap_or_default()
    }

    /// The ports in other networks.
    pub(crate) fn port_mappings(&self) -> &[PortMapping] {
        let mappings = self
            .container
            .as_ref()
            .and_then(|container| container.port_mappings.as_deref());
        mappings.unwrap_or_default()
    }

    /// The number of ports, to which port indices refer.
    pub(crate) fn port_count(&self) -> usize {
        self.port_definitions().len() + self.port_mappings().len()
    }

    /// The names of the ports.
    pub(crate) fn port_names(&self) -> impl Iterator<Item = &str> {
        let defined = self.port_definitions().iter().map(|port| &port.name);
        let mapped = self.port_mappings().iter().map(|port| &port.name);
        defined.chain(mapped).flatten().map(String::as_str)
    }

    /// The service port of each port; 0: none.
    pub(crate) fn service_ports(&self) -> impl Iterator<Item = u16> {
        let defined = self.port_definitions().iter().map(|port| port.port);
        defined.chain(self.port_mappings().iter().map(|port| port.service_port))
    }

    /// The containerizer of the app's container, if it has one.
    pub(crate) fn engine(&self) -> Option<Engine> {
        self.container.as_ref().map(|container| container.engine)
    }

    /// The volumes of the app's container.
    pub(crate) fn volumes(&self) -> &[Volume] {
        self.container
            .as_ref()
            .map_or(&[], |container| &container.volumes)
    }

    /// Whether its instances have persistent volumes, and so stay on their agents.
    pub(crate) fn is_resident(&self) -> bool {
        self.volumes()
            .iter()
            .any(|volume| matches!(volume, Volume::Persistent { .. }))
    }

    /// The effect of a change from `self` to `next`: the greatest one of the changed fields.
    pub(crate) fn effect_of(&self, next: &Self, checks: Checks) -> Effect {
        let changed = EFFECTS.iter().filter(|field| !(field.same)(self, next));
        let effects = changed.map(|field| match field.name {
            // A check that the agent makes is part of the task.
            "check" if self.has_agent_check(checks) || next.has_agent_check(checks) => Effect::Replace,
            "healthChecks" if self.agent_health_check() != next.agent_health_check() => Effect::Replace,
            _ => field.effect,
        });
        effects.max().unwrap_or(Effect::Nothing)
    }

    /// Identifies the configuration: a digest of the fields whose change replaces instances.
    pub(crate) fn config(&self, checks: Checks) -> String {
        let document = serde_json::to_value(self).unwrap_or_default();
        let mut fields = BTreeMap::new();
        for field in EFFECTS {
            let replaces = match field.name {
                "check" => self.has_agent_check(checks),
                _ => field.effect == Effect::Replace,
            };
            if let Some(value) = document.get(field.name).filter(|_| replaces) {
                fields.insert(field.name, value);
            }
        }
        digest(&fields)
    }

    fn has_agent_check(&self, checks: Checks) -> bool {
        self.check
            .as_ref()
            .is_some_and(|check| !check.is_made_by_daemon(checks))
    }

    /// The health check that the agent makes. A task can have only one, so it is the first of
    /// several.
    pub(crate) fn agent_health_check(&self) -> Option<&HealthCheck> {
        self.health_checks
            .iter()
            .find(|check| !check.protocol.is_made_by_daemon())
    }
}

/// Every field of [`App`].
#[expect(
    clippy::float_cmp,
    reason = "a number that a client did not change is the same"
)]
static EFFECTS: &[Field<App>] = fields![App;
    "id" id Nothing,
    "cmd" cmd Replace,
    "args" args Replace,
    "user" user Replace,
    "env" env Replace,
    "secrets" secrets Replace,
    "instances" instances Scale,
    "cpus" cpus Replace,
    "mem" mem Replace,
    "disk" disk Replace,
    "gpus" gpus Replace,
    "resourceLimits" resource_limits Replace,
    "executor" executor Replace,
    "executorResources" executor_resources Replace,
    "container" container Replace,
    "tty" tty Replace,
    "residency" residency Replace,
    "constraints" constraints InPlace,
    "fetch" fetch Replace,
    "networks" networks Replace,
    "portDefinitions" port_definitions Replace,
    "requirePorts" require_ports Replace,
    "backoffSeconds" backoff_seconds InPlace,
    "backoffFactor" backoff_factor InPlace,
    "maxLaunchDelaySeconds" max_launch_delay_seconds InPlace,
    "check" check InPlace,
    "healthChecks" health_checks InPlace,
    "readinessChecks" readiness_checks InPlace,
    "taskKillGracePeriodSeconds" task_kill_grace_period_seconds InPlace,
    "dependencies" dependencies InPlace,
    "upgradeStrategy" upgrade_strategy InPlace,
    "labels" labels InPlace,
    "acceptedResourceRoles" accepted_resource_roles InPlace,
    "unreachableStrategy" unreachable_strategy InPlace,
    "killSelection" kill_selection InPlace,
    "role" role Replace,
    "version" version Nothing,
    "versionInfo" version_info Nothing,
];

/// A placement constraint: `["rack", "GROUP_BY", "3"]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Constraint(pub(crate) Vec<String>);

/// A file that the agent fetches before it starts the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Artifact {
    pub(crate) uri: String,
    pub(crate) extract: bool,
    pub(crate) executable: bool,
    pub(crate) cache: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dest_path: Option<String>,
}

/// How many instances a restart may remove and add, as fractions of their number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpgradeStrategy {
    #[serde(serialize_with = "short_number")]
    pub(crate) maximum_over_capacity: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) minimum_health_capacity: f64,
}

/// The strategy for instances on unreachable agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum UnreachableStrategy {
    /// Replace the instance after one delay and remove it after another.
    Enabled {
        #[serde(rename = "inactiveAfterSeconds")]
        inactive_after_seconds: u32,
        #[serde(rename = "expungeAfterSeconds")]
        expunge_after_seconds: u32,
    },
    /// Wait forever.
    Disabled(Disabled),
}

/// The word `disabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Disabled {
    #[serde(rename = "disabled")]
    Disabled,
}

/// Which instances are removed first when an app has too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum KillSelection {
    YoungestFirst,
    OldestFirst,
}

/// How long an instance with persistent volumes is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Residency {
    pub(crate) relaunch_escalation_timeout_seconds: u64,
    pub(crate) task_lost_behavior: TaskLostBehavior,
}

/// The fate of an instance with persistent volumes whose task is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum TaskLostBehavior {
    WaitForever,
    RelaunchAfterTimeout,
}

/// The times of an app's last changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionInfo {
    pub(crate) last_scaling_at: Moment,
    pub(crate) last_config_change_at: Moment,
}

/// Serializes whole numbers without a decimal point, as upstream does.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub(super) fn short_number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        serializer.serialize_i64(*number as i64)
    } else {
        serializer.serialize_f64(*number)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::{Map, Value, json};

    use super::*;
    use crate::model::effects;
    use crate::settings::CheckRunner;
    use crate::testing::app;

    /// A definition that has every field.
    fn full() -> App {
        let mut app = app(&json!({
            "id": "/a", "cmd": "sleep 1", "user": "u", "env": {"K": "v"}, "instances": 2, "cpus": 0.5, "mem": 64,
            "disk": 1, "constraints": [["hostname", "UNIQUE"]], "fetch": [{"uri": "http://h/f"}],
            "portDefinitions": [{"port": 10001, "name": "http"}], "requirePorts": true, "backoffSeconds": 2,
            "backoffFactor": 1.5, "maxLaunchDelaySeconds": 60, "taskKillGracePeriodSeconds": 4,
            "dependencies": ["/b"], "labels": {"l": "1"}, "acceptedResourceRoles": ["*"],
            "unreachableStrategy": "disabled", "killSelection": "OLDEST_FIRST",
            "upgradeStrategy": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0.5},
            "check": {"http": {"path": "/", "portIndex": 0}, "intervalSeconds": 5, "timeoutSeconds": 2},
            "secrets": {"s": {"source": "/s"}}, "resourceLimits": {"mem": "unlimited"}, "executorResources": {},
            "container": {"type": "MESOS", "volumes": [{"containerPath": "/c", "hostPath": "/h", "mode": "RO"}]},
            "tty": true, "residency": {},
            "healthChecks": [{}], "readinessChecks": [{"portName": "http"}],
        }));
        app.args = vec!["a".to_owned()];
        app.version_info = Some(VersionInfo {
            last_scaling_at: app.version,
            last_config_change_at: app.version,
        });
        app
    }

    fn members(app: &App) -> Map<String, Value> {
        json!(app).as_object().unwrap().clone()
    }

    #[test]
    fn every_field_has_an_effect() {
        let mut named: Vec<&str> = EFFECTS.iter().map(|field| field.name).collect();
        named.sort_unstable();
        let shown = members(&full());
        let mut shown: Vec<&str> = shown.keys().map(String::as_str).collect();
        shown.sort_unstable();
        assert_eq!(named, shown);
    }

    #[test]
    fn documented_effects_are_those_of_the_table() {
        let documented = effects::tests::documented(effects::tests::DEFINITIONS, "## Fields");
        let effects: Vec<(&str, &str)> = EFFECTS
            .iter()
            .map(|field| {
                let effect = match field.name {
                    "check" => "in place, unless agents make the check",
                    "healthChecks" => "in place, unless agents make one that changes",
                    _ => effects::tests::word(field.effect),
                };
                (field.name, effect)
            })
            .collect();
        assert_eq!(documented, effects);
    }

    #[test]
    fn change_of_one_field_has_the_effect_of_that_field() {
        let full = full();
        for field in EFFECTS {
            let mut document = members(&full);
            document[field.name] = match field.name {
                "id" => json!("/c"),
                "container" => json!({"type": "MESOS"}),
                "executorResources" => json!({"cpus": 1, "mem": 64, "disk": 0}),
                "residency" => {
                    json!({"relaunchEscalationTimeoutSeconds": 1, "taskLostBehavior": "WAIT_FOREVER"})
                }
                "killSelection" => json!("YOUNGEST_FIRST"),
                "unreachableStrategy" => json!({"inactiveAfterSeconds": 1, "expungeAfterSeconds": 2}),
                "upgradeStrategy" => json!({"minimumHealthCapacity": 1, "maximumOverCapacity": 1}),
                "versionInfo" | "check" => Value::Null,
                "version" => json!("2018-01-01T00:00:00.000Z"),
                _ => match &document[field.name] {
                    Value::Array(_) => json!([]),
                    Value::Object(_) => json!({}),
                    Value::Bool(value) => json!(!value),
                    Value::Number(_) => json!(7),
                    _ => json!("other"),
                },
            };
            let other: App = serde_json::from_value(Value::Object(document)).unwrap();
            assert_ne!(other, full, "{}", field.name);
            assert_eq!(
                full.effect_of(&other, Checks::default()),
                field.effect,
                "{}",
                field.name
            );
        }
        assert_eq!(full.effect_of(&full, Checks::default()), Effect::Nothing);
    }

    #[test]
    fn changed_health_check_of_the_agent_replaces_instances() {
        let with = |checks: Value| app(&json!({"id": "/a", "cmd": "sleep 1", "healthChecks": checks}));
        let (http, mesos, none) = (
            with(json!([{}])),
            with(json!([{}, {"protocol": "MESOS_TCP"}])),
            with(json!([])),
        );
        let effect = |old: &App, new: &App| old.effect_of(new, Checks::default());
        let version = |app: &App| App {
            health_checks: app.health_checks.clone(),
            ..none.clone()
        };
        assert_eq!(effect(&none, &version(&http)), Effect::InPlace);
        assert_eq!(effect(&none, &version(&mesos)), Effect::Replace);
        assert_eq!(effect(&version(&mesos), &none), Effect::Replace);
        let only = App {
            health_checks: mesos.health_checks[1..].to_vec(),
            ..none.clone()
        };
        assert_eq!(effect(&version(&mesos), &only), Effect::InPlace);
    }

    #[test]
    fn check_of_the_agent_replaces_instances() {
        let full = full();
        let without = App {
            check: None,
            ..full.clone()
        };
        let by_agents = Checks {
            network_from: CheckRunner::Agent,
            exec_from: CheckRunner::Agent,
            ..Checks::default()
        };
        assert_eq!(full.effect_of(&without, by_agents), Effect::Replace);
        assert_eq!(without.effect_of(&full, by_agents), Effect::Replace);
        assert_eq!(full.effect_of(&without, Checks::default()), Effect::InPlace);
    }
}
