//! The contents of a task: commands, containers, volumes, networks.

use super::macros::{messages, names};
use super::{Labels, Secret};
use crate::ids::ContainerId;

names! {
    /// Which containerizer runs a container.
    ContainerType { Docker = "DOCKER", Mesos = "MESOS" }
    /// Whether a volume is writable.
    VolumeMode { ReadWrite = "RW", ReadOnly = "RO" }
    /// A docker container's network.
    DockerNetwork { Host = "HOST", Bridge = "BRIDGE", None = "NONE", User = "USER" }
    /// An image's format.
    ImageType { Appc = "APPC", Docker = "DOCKER" }
}

messages! {
    /// A command. With `shell` (the default) `value` is a shell's command line; without, `value` is
    /// the program and `arguments` are all its arguments, the program's name first.
    CommandInfo {
        may {
            uris: Vec<Uri>,
            environment: Option<Environment>,
            shell: Option<bool>,
            value: Option<String>,
            arguments: Vec<String>,
            user: Option<String>,
        }
    }
    /// A URI that is fetched into the sandbox before the start.
    Uri {
        must { value: String }
        may {
            executable: Option<bool>,
            extract: Option<bool>,
            cache: Option<bool>,
            output_file: Option<String>,
        }
    }
    /// Environment variables.
    Environment { may { variables: Vec<Variable> } }
    /// One environment variable; `type` is `VALUE` (the default) or `SECRET`.
    Variable {
        must { name: String }
        may { r#type: Option<String>, value: Option<String>, secret: Option<Secret> }
    }

    /// A container.
    ContainerInfo {
        must { r#type: ContainerType }
        may {
            volumes: Vec<Volume>,
            hostname: Option<String>,
            docker: Option<DockerInfo>,
            mesos: Option<MesosInfo>,
            network_infos: Vec<NetworkInfo>,
            linux_info: Option<serde_json::Value>,
            rlimit_info: Option<serde_json::Value>,
            tty_info: Option<serde_json::Value>,
        }
    }
    /// A container of the docker containerizer.
    DockerInfo {
        must { image: String }
        may {
            network: Option<DockerNetwork>,
            port_mappings: Vec<PortMapping>,
            privileged: Option<bool>,
            parameters: Vec<Parameter>,
            force_pull_image: Option<bool>,
            volume_driver: Option<String>,
        }
    }
    /// A port of the host that is mapped to one of the container (docker).
    PortMapping { must { host_port: u32, container_port: u32 } may { protocol: Option<String> } }
    /// A port of the host that is mapped to one of the container (networks of the cluster manager).
    NetworkPortMapping { must { host_port: u32, container_port: u32 } may { protocol: Option<String> } }
    /// A key and a value.
    Parameter { must { key: String, value: String } }
    /// Several parameters.
    Parameters { may { parameter: Vec<Parameter> } }
    /// A container of the cluster manager's own containerizer.
    MesosInfo { may { image: Option<Image> } }
    /// The source of a container's file system. `cached` (the default) keeps the image on the
    /// agent.
    Image {
        must { r#type: ImageType }
        may { docker: Option<DockerImage>, appc: Option<serde_json::Value>, cached: Option<bool> }
    }
    /// A docker image's name, and its registry's credentials.
    DockerImage { must { name: String } may { config: Option<Secret> } }

    /// A mount in the container's file system.
    Volume {
        must { container_path: String }
        may {
            mode: Option<VolumeMode>,
            host_path: Option<String>,
            image: Option<Image>,
            source: Option<VolumeSource>,
        }
    }
    /// The source of a volume; the field named like the type (in lower case) is set.
    VolumeSource {
        may {
            r#type: Option<String>,
            docker_volume: Option<DockerVolume>,
            host_path: Option<VolumeHostPath>,
            sandbox_path: Option<VolumeSandboxPath>,
            secret: Option<Secret>,
            csi_volume: Option<serde_json::Value>,
        }
    }
    /// A volume of a docker volume driver.
    DockerVolume {
        must { name: String }
        may { driver: Option<String>, driver_options: Option<Parameters> }
    }
    /// A path on the host.
    VolumeHostPath { must { path: String } }
    /// A path in the task's own (`SELF`) or its executor's (`PARENT`) sandbox.
    VolumeSandboxPath { must { path: String } may { r#type: Option<String> } }

    /// A network that a container has joined, or is to join. Very old agents write `ip_address`.
    NetworkInfo {
        may {
            ip_addresses: Vec<IpAddress>,
            ip_address: Option<String>,
            name: Option<String>,
            groups: Vec<String>,
            labels: Option<Labels>,
            port_mappings: Vec<NetworkPortMapping>,
        }
    }
    /// An address on a network; `protocol` is `IPv4` or `IPv6`.
    IpAddress { may { protocol: Option<String>, ip_address: Option<String> } }

    /// A running container, as reported by its agent.
    ContainerStatus {
        may {
            container_id: Option<ContainerId>,
            network_infos: Vec<NetworkInfo>,
            executor_pid: Option<u32>,
        }
    }
}
