//! The containers of a pod, with the ports on which they are reached.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PodCheck, PodHealthCheck};
use crate::model::app::short_number;
use crate::model::{Artifact, CheckCommand, EnvValue, LinuxInfo, PullConfig, ResourceLimits};

/// One container of a pod; it becomes one task of the instance's group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodContainer {
    /// Unique within the pod.
    pub(crate) name: String,
    /// The program; absent: the image's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exec: Option<Exec>,
    pub(crate) resources: PodResources,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_limits: Option<ResourceLimits>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) endpoints: Vec<Endpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) linux_info: Option<LinuxInfo>,
    /// Absent: the file system of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<Image>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) environment: BTreeMap<String, EnvValue>,
    /// Absent: the pod's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) health_check: Option<PodHealthCheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<PodCheck>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volume_mounts: Vec<VolumeMount>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lifecycle: Option<Lifecycle>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tty: Option<bool>,
}

/// The program of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exec {
    pub(crate) command: CheckCommand,
    /// Whether arguments replace the image's entry point, instead of being passed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) override_entrypoint: Option<bool>,
}

/// Amounts of resources; memory and disk in megabytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PodResources {
    #[serde(serialize_with = "short_number")]
    pub(crate) cpus: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) mem: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) disk: f64,
    pub(crate) gpus: u32,
}

/// A port of a container. Its name is unique within the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    /// The port in the container; 0, or absent in a bridge: the same as the port of the agent, or
    /// any if there is none. Absent in host networking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) container_port: Option<u16>,
    /// The port of the agent; 0: any. Absent, only in container networks: the container is reached
    /// at its own address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_port: Option<u16>,
    /// Names of protocols, such as `udp` or `http`, never empty.
    pub(crate) protocol: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// The container networks that it belongs to, by name; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) network_names: Vec<String>,
}

/// The file system of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Image {
    pub(crate) kind: ImageKind,
    /// The name in the registry.
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pull_config: Option<PullConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) force_pull: Option<bool>,
    /// Shown only; agents ignore it for images of this kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// The kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum ImageKind {
    Docker,
}

/// Where a volume of the pod appears in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeMount {
    /// The volume's name.
    pub(crate) name: String,
    /// The path in the container; a relative one is in its sandbox.
    pub(crate) mount_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
}

/// How a container ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lifecycle {
    /// Seconds between SIGTERM and SIGKILL.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "short_seconds"
    )]
    pub(crate) kill_grace_period_seconds: Option<f64>,
}

#[expect(clippy::ref_option, reason = "serde asks for a reference")]
fn short_seconds<S: serde::Serializer>(seconds: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    short_number(&seconds.unwrap_or_default(), serializer)
}
