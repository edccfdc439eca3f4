//! The container of a task: image, network, volumes, options of the containerizer.

use serde_json::{Value, json};
use transom_cluster::v1::{
    self, ContainerInfo, ContainerType, DockerImage, DockerInfo, ImageType, MesosInfo, Parameter,
};

use crate::command::secret;

use crate::{Network, PortMapping, Volume};

/// A container. Both containerizers take the same description.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Which containerizer runs it.
    pub containerizer: Containerizer,
    /// Its file system. `None`: that of the agent; Docker always needs one.
    pub image: Option<Image>,
    /// The host name within the container.
    pub hostname: Option<String>,
    /// Its network.
    pub network: Network,
    /// Mappings of the agent's ports to the container's ports. Ignored in networks where a
    /// container has no ports of its own.
    pub port_mappings: Vec<PortMapping>,
    /// Mounts.
    pub volumes: Vec<Volume>,
    /// The size of `/dev/shm` in megabytes; `None`: the containerizer's default.
    pub shm_size_mb: Option<u32>,
    /// The IPC namespace; `None`: the agent's default. For the Mesos containerizer.
    pub ipc: Option<IpcMode>,
    /// The filter of system calls; `None`: the agent's default. For the Mesos containerizer.
    pub seccomp: Option<Seccomp>,
    /// Whether a task of a group shares the cgroup, and so the limits, of its executor and the
    /// group's other tasks; `None`: the agent's default. For the Mesos containerizer.
    pub share_cgroups: Option<bool>,
    /// Whether its program gets a terminal.
    pub tty: bool,
}

/// The IPC namespace and `/dev/shm` of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpcMode {
    /// Private ones.
    Private,
    /// Those of its parent, which for a task is the agent.
    ShareParent,
}

/// A filter of system calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seccomp {
    /// No filter.
    Unconfined,
    /// A profile on the agent, by name.
    Profile(String),
}

/// Which of the agent's containerizers runs a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Containerizer {
    /// Docker's containerizer.
    Docker {
        /// Whether the container has the rights of the agent's root user.
        privileged: bool,
        /// Options of `docker run` (`("cap-add", "NET_ADMIN")`), in order. A key may occur
        /// several times.
        parameters: Vec<(String, String)>,
    },
    /// The cluster manager's own containerizer.
    Mesos,
}

impl Containerizer {
    /// Docker's containerizer without options.
    pub fn docker() -> Self {
        Self::Docker {
            privileged: false,
            parameters: Vec::new(),
        }
    }
}

/// An image in a Docker registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its name, with registry and tag if the definition contains them.
    pub name: String,
    /// Whether the agent pulls the image again even if it has a copy.
    pub force_pull: bool,
    /// The registry's credentials: the name of a secret in the cluster's secret store. For the
    /// Mesos containerizer.
    pub pull_secret: Option<String>,
}

impl Container {
    /// A container in the agent's network, without image and volumes.
    pub fn new(containerizer: Containerizer) -> Self {
        Self {
            containerizer,
            image: None,
            hostname: None,
            network: Network::Host,
            port_mappings: Vec::new(),
            volumes: Vec::new(),
            shm_size_mb: None,
            ipc: None,
            seccomp: None,
            share_cgroups: None,
            tty: false,
        }
    }

    /// The Linux options of the Mesos containerizer; `None`: the defaults. A size of `/dev/shm`
    /// requires a private IPC namespace, which is therefore the default if a size is set.
    fn linux_info(&self) -> Option<Value> {
        let mut info = serde_json::Map::new();
        let ipc = self.ipc.or(self.shm_size_mb.map(|_| IpcMode::Private));
        info.extend(ipc.map(|mode| {
            let mode = match mode {
                IpcMode::Private => "PRIVATE",
                IpcMode::ShareParent => "SHARE_PARENT",
            };
            ("ipc_mode".to_owned(), json!(mode))
        }));
        info.extend(self.shm_size_mb.map(|size| ("shm_size".to_owned(), json!(size))));
        info.extend(self.seccomp.as_ref().map(|seccomp| {
            let seccomp = match seccomp {
                Seccomp::Unconfined => json!({"unconfined": true}),
                Seccomp::Profile(name) => json!({"profile_name": name}),
            };
            ("seccomp".to_owned(), seccomp)
        }));
        info.extend(
            self.share_cgroups
                .map(|share| ("share_cgroups".to_owned(), json!(share))),
        );
        (!info.is_empty()).then_some(Value::Object(info))
    }
}

impl From<Container> for ContainerInfo {
    fn from(container: Container) -> Self {
        let linux_info = container.linux_info();
        let Container {
            containerizer,
            image,
            hostname,
            network,
            mut port_mappings,
            volumes,
            shm_size_mb,
            tty,
            ..
        } = container;
        let tty_info = tty.then(|| json!({}));
        if !network.has_own_ports() {
            port_mappings.clear();
        }
        match containerizer {
            Containerizer::Docker {
                privileged,
                mut parameters,
            } => {
                parameters.extend(shm_size_mb.map(|size| ("shm-size".to_owned(), format!("{size}m"))));
                let image = image.unwrap_or_default();
                Self {
                    r#type: ContainerType::Docker,
                    volumes: volumes.into_iter().map(Volume::into_docker).collect(),
                    hostname,
                    docker: Some(DockerInfo {
                        image: image.name,
                        network: Some(network.docker_mode()),
                        port_mappings: port_mappings.into_iter().map(Into::into).collect(),
                        privileged: privileged.then_some(true),
                        parameters: parameters
                            .into_iter()
                            .map(|(key, value)| Parameter { key, value })
                            .collect(),
                        force_pull_image: Some(image.force_pull),
                        ..DockerInfo::default()
                    }),
                    network_infos: network.into_infos(&[]),
                    tty_info,
                    ..Self::default()
                }
            }
            Containerizer::Mesos => Self {
                r#type: ContainerType::Mesos,
                volumes: volumes.into_iter().map(Volume::into_mesos).collect(),
                hostname,
                mesos: Some(MesosInfo {
                    image: image.map(Into::into),
                }),
                network_infos: network.into_infos(&port_mappings),
                linux_info,
                tty_info,
                ..Self::default()
            },
        }
    }
}

impl From<Image> for v1::Image {
    fn from(image: Image) -> Self {
        Self {
            r#type: ImageType::Docker,
            docker: Some(DockerImage {
                name: image.name,
                config: image.pull_secret.map(secret),
            }),
            cached: Some(!image.force_pull),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(container: Container) -> Value {
        serde_json::to_value(ContainerInfo::from(container)).unwrap()
    }

    fn alpine(force_pull: bool) -> Image {
        Image {
            name: "alpine:3.20".to_owned(),
            force_pull,
            pull_secret: None,
        }
    }

    #[test]
    fn image_is_pulled_as_each_containerizer_expects() {
        for force_pull in [true, false] {
            let docker = Container {
                image: Some(alpine(force_pull)),
                ..Container::new(Containerizer::docker())
            };
            let expected = json!({
                "type": "DOCKER",
                "docker": {"image": "alpine:3.20", "network": "HOST", "force_pull_image": force_pull},
            });
            assert_eq!(info(docker), expected);
            let mesos = Container {
                image: Some(alpine(force_pull)),
                ..Container::new(Containerizer::Mesos)
            };
            let image = json!({"type": "DOCKER", "docker": {"name": "alpine:3.20"}, "cached": !force_pull});
            assert_eq!(info(mesos), json!({"type": "MESOS", "mesos": {"image": image}}));
        }
        let without = info(Container::new(Containerizer::Mesos));
        assert_eq!(
            without,
            json!({"type": "MESOS", "mesos": {}}),
            "the agent's own file system"
        );
    }

    #[test]
    fn credentials_of_the_registry_are_a_reference_to_a_secret() {
        let container = info(Container {
            image: Some(Image {
                pull_secret: Some("/registry".to_owned()),
                ..alpine(false)
            }),
            ..Container::new(Containerizer::Mesos)
        });
        let expected = json!({"type": "REFERENCE", "reference": {"name": "/registry"}});
        assert_eq!(container["mesos"]["image"]["docker"]["config"], expected);
    }

    #[test]
    fn linux_options_and_terminal_are_set_only_when_asked_for() {
        for (container, linux, tty) in [
            (Container::new(Containerizer::Mesos), json!(null), json!(null)),
            (
                Container {
                    ipc: Some(IpcMode::ShareParent),
                    seccomp: Some(Seccomp::Unconfined),
                    share_cgroups: Some(false),
                    tty: true,
                    ..Container::new(Containerizer::Mesos)
                },
                json!({"ipc_mode": "SHARE_PARENT", "seccomp": {"unconfined": true}, "share_cgroups": false}),
                json!({}),
            ),
            (
                Container {
                    seccomp: Some(Seccomp::Profile("strict.json".to_owned())),
                    ..Container::new(Containerizer::Mesos)
                },
                json!({"seccomp": {"profile_name": "strict.json"}}),
                json!(null),
            ),
        ] {
            let shown = info(container);
            assert_eq!(shown["linux_info"], linux);
            assert_eq!(shown["tty_info"], tty);
        }
    }

    #[test]
    fn docker_options_keep_their_order() {
        let parameters = [
            ("cap-add", "NET_ADMIN"),
            ("cap-add", "SYS_ADMIN"),
            ("user", "1000"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let docker = info(Container {
            hostname: Some("server.local".to_owned()),
            ..Container::new(Containerizer::Docker {
                privileged: true,
                parameters: parameters.to_vec(),
            })
        });
        assert_eq!(docker["hostname"], "server.local");
        assert_eq!(docker["docker"]["privileged"], true);
        let expected = json!([
            {"key": "cap-add", "value": "NET_ADMIN"},
            {"key": "cap-add", "value": "SYS_ADMIN"},
            {"key": "user", "value": "1000"},
        ]);
        assert_eq!(docker["docker"]["parameters"], expected);
        let plain = info(Container::new(Containerizer::docker()));
        assert_eq!(plain["docker"].get("privileged"), None);
    }

    #[test]
    fn shared_memory_has_the_size_in_megabytes() {
        for (containerizer, pointer, expected) in [
            (
                Containerizer::docker(),
                "/docker/parameters",
                json!([{"key": "shm-size", "value": "64m"}]),
            ),
            (
                Containerizer::Mesos,
                "/linux_info",
                json!({"ipc_mode": "PRIVATE", "shm_size": 64}),
            ),
        ] {
            let container = info(Container {
                shm_size_mb: Some(64),
                ..Container::new(containerizer)
            });
            assert_eq!(container.pointer(pointer), Some(&expected));
        }
    }
}
