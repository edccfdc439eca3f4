//! The pod definition in its canonical form, in which it is stored, compared and shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PodCheck, PodContainer, PodResources};
use crate::ids::SpecId;
use crate::model::app::short_number;
use crate::model::{
    Check, CheckPort, Constraint, EnvValue, ExecutorResources, KillSelection, LinuxInfo, Network,
    NetworkMode, PersistentVolume, SecretDef, UnreachableStrategy, UpgradeStrategy, VersionInfo,
};
use crate::time::Moment;

/// A definition of a pod, with all defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pod {
    pub(crate) id: SpecId,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// The time of this definition.
    pub(crate) version: Moment,
    /// The user of containers that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Variables of all containers; those of a container take precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) environment: BTreeMap<String, EnvValue>,
    /// One or more.
    pub(crate) containers: Vec<PodContainer>,
    /// Secrets by the names that the definition uses.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) secrets: BTreeMap<String, SecretDef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volumes: Vec<PodVolume>,
    /// The networks that all containers share.
    pub(crate) networks: Vec<Network>,
    pub(crate) scaling: Scaling,
    pub(crate) scheduling: Scheduling,
    /// The resources of the executor, in addition to those of the containers.
    pub(crate) executor_resources: ExecutorResources,
    pub(crate) role: String,
    /// Linux options of the executor, which containers can share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) linux_info: Option<LinuxInfo>,
    /// Whether all containers are limited together, as before Mesos 1.10. Shown only when true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) legacy_shared_cgroups: bool,
    /// A check of the first container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<PodCheck>,
    /// The times of the last changes. The API shows a definition without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version_info: Option<VersionInfo>,
}

/// The number of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Scaling {
    /// Always this number.
    Fixed { instances: u32 },
}

/// When and where instances run, and how they are replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scheduling {
    pub(crate) backoff: Backoff,
    pub(crate) upgrade: UpgradeStrategy,
    pub(crate) placement: Placement,
    pub(crate) kill_selection: KillSelection,
    pub(crate) unreachable_strategy: UnreachableStrategy,
}

/// The delay of launches after failures, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Backoff {
    /// After the first failure.
    #[serde(rename = "backoff", serialize_with = "short_number")]
    pub(crate) initial_delay: f64,
    /// How much longer it is after each further one.
    #[serde(rename = "backoffFactor", serialize_with = "short_number")]
    pub(crate) factor: f64,
    #[serde(rename = "maxLaunchDelay", serialize_with = "short_number")]
    pub(crate) max_delay: f64,
}

/// The agents that may run instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Placement {
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "constraints")]
    #[schemars(with = "Vec<constraints::PodConstraint>")]
    pub(crate) constraints: Vec<Constraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) accepted_resource_roles: Vec<String>,
}

/// A volume that containers mount by its name. Its kind is recognized by its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum PodVolume {
    /// A disk of the agent that outlives the instance's tasks.
    Persistent {
        name: String,
        persistent: PersistentVolume,
    },
    /// A file with a secret.
    Secret {
        name: String,
        /// A name in the pod's `secrets`.
        secret: String,
    },
    /// A path on the agent, or a relative one in the executor's sandbox.
    Host { name: String, host: String },
    /// A directory in the executor's sandbox.
    Ephemeral { name: String },
}

impl PodVolume {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Persistent { name, .. }
            | Self::Secret { name, .. }
            | Self::Host { name, .. }
            | Self::Ephemeral { name } => name,
        }
    }
}

impl Pod {
    /// The number of instances.
    pub(crate) fn instances(&self) -> u32 {
        let Scaling::Fixed { instances } = self.scaling;
        instances
    }

    /// The definition for clients: as in upstream, without the times of the last changes.
    pub(crate) fn without_version_info(&self) -> Self {
        Self {
            version_info: None,
            ..self.clone()
        }
    }

    /// Changes the number of instances.
    pub(crate) fn set_instances(&mut self, instances: u32) {
        self.scaling = Scaling::Fixed { instances };
    }

    pub(crate) fn constraints(&self) -> &[Constraint] {
        &self.scheduling.placement.constraints
    }

    pub(crate) fn accepted_resource_roles(&self) -> &[String] {
        &self.scheduling.placement.accepted_resource_roles
    }

    pub(crate) fn upgrade_strategy(&self) -> UpgradeStrategy {
        self.scheduling.upgrade
    }

    pub(crate) fn unreachable_strategy(&self) -> UnreachableStrategy {
        self.scheduling.unreachable_strategy
    }

    pub(crate) fn kill_selection(&self) -> KillSelection {
        self.scheduling.kill_selection
    }

    pub(crate) fn backoff(&self) -> Backoff {
        self.scheduling.backoff
    }

    /// Whether its instances have persistent volumes, and so stay on their agents.
    pub(crate) fn is_resident(&self) -> bool {
        self.persistent_volumes().next().is_some()
    }

    /// The persistent volumes by name.
    pub(crate) fn persistent_volumes(&self) -> impl Iterator<Item = (&str, &PersistentVolume)> {
        self.volumes.iter().filter_map(|volume| match volume {
            PodVolume::Persistent { name, persistent } => Some((name.as_str(), persistent)),
            _ => None,
        })
    }

    /// The volume with this name.
    pub(crate) fn volume(&self, name: &str) -> Option<&PodVolume> {
        self.volumes.iter().find(|volume| volume.name() == name)
    }

    /// Whether containers use the network of their agent.
    pub(crate) fn uses_host_network(&self) -> bool {
        self.networks
            .iter()
            .all(|network| network.mode == NetworkMode::Host)
    }

    /// The check of the container with this index, from 0. The pod's own check belongs to the first
    /// container.
    pub(crate) fn check_of(&self, container: usize) -> Option<&PodCheck> {
        let own = || self.containers.get(container)?.check.as_ref();
        self.check.as_ref().filter(|_| container == 0).or_else(own)
    }

    /// The same check with its endpoint as an index into the container's endpoints, which is the
    /// form that checks of apps have.
    pub(crate) fn indexed_check_of(&self, container: usize) -> Option<Check> {
        let endpoints = &self.containers.get(container)?.endpoints;
        self.check_of(container)?.with_port(|at| {
            let index = endpoints.iter().position(|it| it.name == at.endpoint)?;
            u16::try_from(index).ok().map(CheckPort::PortIndex)
        })
    }

    /// Seconds between SIGTERM and SIGKILL of a container; `None`: the agent's default.
    pub(crate) fn kill_grace_of(&self, container: usize) -> Option<f64> {
        let lifecycle = self.containers.get(container)?.lifecycle?;
        lifecycle.kill_grace_period_seconds
    }

    /// The resources of an instance: those of its containers and of its executor.
    pub(crate) fn resources(&self) -> PodResources {
        let executor = self.executor_resources;
        let sum = PodResources {
            cpus: executor.cpus,
            mem: executor.mem,
            disk: executor.disk,
            gpus: 0,
        };
        let containers = self.containers.iter().map(|container| container.resources);
        containers.fold(sum, |sum, more| PodResources {
            cpus: sum.cpus + more.cpus,
            mem: sum.mem + more.mem,
            disk: sum.disk + more.disk,
            gpus: sum.gpus.saturating_add(more.gpus),
        })
    }
}

/// Constraints as objects, `{"fieldName", "operator", "value"}`, where apps have lists.
mod constraints {
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Constraint;

    /// A placement constraint of a pod.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct PodConstraint {
        field_name: String,
        operator: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    }

    pub(super) fn serialize<S: Serializer>(
        constraints: &[Constraint],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(constraints.iter().map(|constraint| {
            let mut fields = constraint.0.iter().cloned();
            PodConstraint {
                field_name: fields.next().unwrap_or_default(),
                operator: fields.next().unwrap_or_default(),
                value: fields.next(),
            }
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Constraint>, D::Error> {
        let objects = Vec::<PodConstraint>::deserialize(deserializer)?;
        let list = |object: PodConstraint| {
            let pair = [object.field_name, object.operator];
            Constraint(pair.into_iter().chain(object.value).collect())
        };
        Ok(objects.into_iter().map(list).collect())
    }
}
