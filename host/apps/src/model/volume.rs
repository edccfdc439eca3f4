//! The volumes of a container.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A mount in the container's file system. Its kind is recognized by its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(crate) enum Volume {
    /// A disk of the agent that outlives the task.
    Persistent {
        container_path: String,
        mode: ReadMode,
        persistent: PersistentVolume,
    },
    /// A volume of a driver.
    External {
        container_path: String,
        mode: ReadMode,
        external: ExternalVolume,
    },
    /// A file with a secret.
    Secret {
        container_path: String,
        /// A name in the app's `secrets`.
        secret: String,
    },
    /// A path on the agent.
    Host {
        container_path: String,
        mode: ReadMode,
        host_path: String,
    },
}

impl Volume {
    /// The path in the container.
    pub(crate) fn container_path(&self) -> &str {
        match self {
            Self::Persistent { container_path, .. }
            | Self::External { container_path, .. }
            | Self::Secret { container_path, .. }
            | Self::Host { container_path, .. } => container_path,
        }
    }
}

/// Whether a task may write to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum ReadMode {
    #[serde(rename = "RO")]
    ReadOnly,
    #[serde(rename = "RW")]
    ReadWrite,
}

/// A persistent volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PersistentVolume {
    #[serde(rename = "type")]
    pub(crate) kind: DiskKind,
    /// In megabytes.
    pub(crate) size: u64,
    /// In megabytes; a disk of kind `mount` may be larger than `size`, up to this limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profile_name: Option<String>,
    /// Rules for the path of the disk.
    #[serde(default)]
    pub(crate) constraints: Vec<Vec<String>>,
}

/// The kind of the disk of a persistent volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DiskKind {
    Root,
    Path,
    Mount,
}

/// A volume of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ExternalVolume {
    Csi(CsiVolume),
    Dvdi(DvdiVolume),
}

impl ExternalVolume {
    /// The volume's name.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Csi(volume) => Some(&volume.name),
            Self::Dvdi(volume) => volume.name.as_deref(),
        }
    }
}

/// A volume of a Docker volume driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DvdiVolume {
    /// In gigabytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<String>,
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
    /// Whether several instances may use it.
    pub(crate) shared: bool,
}

/// A volume of a CSI plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CsiVolume {
    /// The volume's id.
    pub(crate) name: String,
    pub(crate) provider: CsiProvider,
    pub(crate) options: CsiOptions,
}

/// The provider `csi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CsiProvider {
    Csi,
}

/// The plugin of a CSI volume, and its options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CsiOptions {
    pub(crate) plugin_name: String,
    pub(crate) capability: CsiCapability,
    /// Names in the app's `secrets` by the plugin's own names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) node_stage_secret: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) node_publish_secret: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) volume_context: BTreeMap<String, String>,
}

/// How a CSI volume is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CsiCapability {
    /// A name of the CSI specification, such as `SINGLE_NODE_WRITER`.
    pub(crate) access_mode: String,
    pub(crate) access_type: CsiAccess,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fs_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mount_flags: Vec<String>,
}

/// How a CSI volume appears in the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CsiAccess {
    Block,
    Mount,
}
