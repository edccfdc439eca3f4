//! The specification of a container, independent of the runtime.

use super::limits::Limits;
use serde_json::Value;
use std::{net::IpAddr, path::PathBuf};

/// The path of the sandbox in every container.
pub(super) const SANDBOX_PATH: &str = "/mnt/mesos/sandbox";

/// The containerizer of a real agent that would run the task. The status updates differ between the
/// two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Containerizer {
    /// `ContainerInfo` of type DOCKER.
    Docker,
    /// `ContainerInfo` of type MESOS with an image.
    Mesos,
}

/// An image and how it is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) name: String,
    /// Whether to pull it even if it is present.
    pub(super) force_pull: bool,
    /// A Docker configuration with the credentials of registries.
    pub(super) config: Option<Vec<u8>>,
}

/// The network of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// The agent's network.
    Host,
    /// Only a loopback interface.
    None,
    /// The runtime's default bridge.
    Bridge,
    /// One of the runtime's networks.
    Named(String),
    /// The network of another container.
    Container(String),
}

impl Network {
    /// The value of the runtime's option `--network`.
    pub(super) fn argument(&self) -> String {
        match self {
            Self::Host => "host".to_owned(),
            Self::None => "none".to_owned(),
            Self::Bridge => "bridge".to_owned(),
            Self::Named(name) => name.clone(),
            Self::Container(container) => format!("container:{container}"),
        }
    }

    /// Whether a container gets its own address in this network.
    pub(super) fn has_address(&self) -> bool {
        matches!(self, Self::Bridge | Self::Named(_))
    }
}

/// A port of the agent that leads into the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishedPort {
    pub(super) address: IpAddr,
    pub(super) host: u16,
    pub(super) container: u16,
    pub(super) protocol: String,
}

/// A mount of a directory or a volume in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// A path on this machine or the name of a volume; `None` for an anonymous volume.
    pub(super) source: Option<String>,
    pub(super) target: String,
    pub(super) read_only: bool,
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub(super) containerizer: Containerizer,
    pub(super) name: String,
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) image: Image,
    pub(super) network: Network,
    pub(super) published: Vec<PublishedPort>,
    /// The task's own description of its network, for the status.
    pub(super) network_info: Option<Value>,
    pub(super) hostname: Option<String>,
    pub(super) mounts: Vec<Mount>,
    pub(super) volume_driver: Option<String>,
    /// Directories that are created before the start.
    pub(super) directories: Vec<PathBuf>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) limits: Limits,
    /// The image's user if `None`.
    pub(super) user: Option<String>,
    /// The image's working directory if `None`.
    pub(super) workdir: Option<String>,
    pub(super) privileged: bool,
    /// Options of `docker run`.
    pub(super) parameters: Vec<(String, String)>,
    pub(super) shm_size_mb: Option<u64>,
    /// The image's entry point if `None`.
    pub(super) entrypoint: Option<String>,
    /// If these are empty and there is no entry point, the image's own arguments are used.
    pub(super) arguments: Vec<String>,
}
