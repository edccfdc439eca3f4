//! The app definition in its canonical form, in which it is stored, compared and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::Check;
use crate::ids::AppId;
use crate::time::Moment;

/// A canonical definition, with all defaults and without deprecated fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct App {
    pub(crate) id: AppId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cmd: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) instances: u32,
    #[serde(serialize_with = "short_number")]
    pub(crate) cpus: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) mem: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) disk: f64,
    pub(crate) gpus: u32,
    pub(crate) executor: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) constraints: Vec<Constraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) fetch: Vec<Artifact>,
    pub(crate) networks: Vec<Network>,
    pub(crate) port_definitions: Vec<PortDefinition>,
    pub(crate) require_ports: bool,
    pub(crate) backoff_seconds: u32,
    #[serde(serialize_with = "short_number")]
    pub(crate) backoff_factor: f64,
    pub(crate) max_launch_delay_seconds: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<Check>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task_kill_grace_period_seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dependencies: Vec<AppId>,
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
    /// The version of the last change that requires a restart of instances.
    pub(crate) fn config_version(&self) -> Moment {
        self.version_info
            .map_or(self.version, |info| info.last_config_change_at)
    }

    /// Whether a change from `self` to `other` restarts instances. Their number and the versions
    /// are ignored.
    pub(crate) fn is_upgrade_to(&self, other: &Self) -> bool {
        let mut same_but = other.clone();
        same_but.instances = self.instances;
        same_but.version = self.version;
        same_but.version_info = self.version_info;
        *self != same_but
    }
}

/// A placement constraint: `["rack", "GROUP_BY", "3"]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Constraint(pub(crate) Vec<String>);

/// A file that the agent fetches before it starts the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Artifact {
    pub(crate) uri: String,
    pub(crate) extract: bool,
    pub(crate) executable: bool,
    pub(crate) cache: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dest_path: Option<String>,
}

/// A network of the app. Only the host network is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) mode: NetworkMode,
}

/// The network mode of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NetworkMode {
    /// The app uses the network of its agent.
    Host,
}

/// A port that each instance gets on its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortDefinition {
    /// The service port; with `requirePorts` also the port on the agent, where 0 means any.
    pub(crate) port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) protocol: Protocol,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// Transport protocols of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Protocol {
    #[serde(rename = "tcp")]
    Tcp,
    #[serde(rename = "udp")]
    Udp,
    /// Both; upstream accepts either order and shows this one.
    #[serde(rename = "udp,tcp")]
    Both,
}

impl Protocol {
    /// Each protocol by its name.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &["tcp"],
            Self::Udp => &["udp"],
            Self::Both => &["udp", "tcp"],
        }
    }
}

/// How many instances a restart may remove and add, as fractions of their number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpgradeStrategy {
    #[serde(serialize_with = "short_number")]
    pub(crate) maximum_over_capacity: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) minimum_health_capacity: f64,
}

/// The strategy for instances on unreachable agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Disabled {
    #[serde(rename = "disabled")]
    Disabled,
}

/// Which instances are removed first when an app has too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum KillSelection {
    YoungestFirst,
    OldestFirst,
}

/// The times of an app's last changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionInfo {
    pub(crate) last_scaling_at: Moment,
    pub(crate) last_config_change_at: Moment,
}

/// Whole numbers without a decimal point, as upstream formats them.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn short_number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        serializer.serialize_i64(*number as i64)
    } else {
        serializer.serialize_f64(*number)
    }
}
