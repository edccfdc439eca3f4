//! The container of an app.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PortMapping, Volume};

/// A container: its containerizer, image, mounts and ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    #[serde(rename = "type")]
    pub(crate) engine: Engine,
    /// The image and its options; Docker's containerizer needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) docker: Option<Docker>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) linux_info: Option<LinuxInfo>,
    #[serde(default)]
    pub(crate) volumes: Vec<Volume>,
    /// Absent exactly in host networking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port_mappings: Option<Vec<PortMapping>>,
}

impl Container {
    /// A container without image, mounts and ports.
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            docker: None,
            linux_info: None,
            volumes: Vec::new(),
            port_mappings: None,
        }
    }
}

/// Which of the agent's containerizers runs a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Engine {
    Mesos,
    Docker,
}

/// An image in a Docker registry, and options of Docker's containerizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Docker {
    pub(crate) image: String,
    pub(crate) force_pull_image: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pull_config: Option<PullConfig>,
    pub(crate) privileged: bool,
    pub(crate) parameters: Vec<Parameter>,
}

/// The credentials of the image's registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PullConfig {
    /// A name in the app's `secrets`.
    pub(crate) secret: String,
}

/// An option of `docker run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Parameter {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Linux options of a container of the Mesos containerizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LinuxInfo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seccomp: Option<Seccomp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ipc_info: Option<IpcInfo>,
}

/// The filter of system calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Seccomp {
    /// A profile of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profile_name: Option<String>,
    pub(crate) unconfined: bool,
}

/// Shared memory and System V IPC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IpcInfo {
    pub(crate) mode: IpcMode,
    /// The size of `/dev/shm` in megabytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shm_size: Option<u32>,
}

/// Whose IPC namespace a container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum IpcMode {
    Private,
    ShareParent,
}
