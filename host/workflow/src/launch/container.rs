//! The container of a job: image, network, volumes.

use transom_cluster::v1::{
    ContainerInfo, ContainerType, DockerImage, DockerInfo, DockerNetwork, DockerVolume, Image, ImageType,
    MesosInfo, NetworkInfo, NetworkPortMapping, Parameter, PortMapping, Volume, VolumeHostPath, VolumeMode,
    VolumeSource,
};
use transom_scheduler::Placement;

use crate::config::Defaults;
use crate::model::{Containerizer, Mount, Spec};

/// The network modes of jobs.
enum Network {
    Host,
    Bridge,
    None,
    Named(String),
}

impl Network {
    fn of(name: &str) -> Self {
        match name.to_ascii_uppercase().as_str() {
            "HOST" => Self::Host,
            "BRIDGE" => Self::Bridge,
            "NONE" => Self::None,
            _ => Self::Named(name.to_owned()),
        }
    }

    /// Whether a container has its own ports in this network.
    fn has_own_ports(&self) -> bool {
        matches!(self, Self::Bridge | Self::Named(_))
    }
}

pub(super) fn container(spec: &Spec, defaults: &Defaults, placement: &Placement) -> ContainerInfo {
    let image = spec
        .image
        .clone()
        .or_else(|| defaults.image.clone())
        .unwrap_or_default();
    let network = Network::of(spec.network_mode.as_deref().unwrap_or(&defaults.network_mode));
    let volumes = volumes(spec, defaults);
    match spec.containerizer {
        Containerizer::Docker => docker(spec, defaults, placement, image, &network, volumes),
        Containerizer::Mesos => mesos(spec, placement, image, &network, volumes),
    }
}

fn docker(
    spec: &Spec,
    defaults: &Defaults,
    placement: &Placement,
    image: String,
    network: &Network,
    volumes: Vec<Volume>,
) -> ContainerInfo {
    let mut parameters = Vec::new();
    let mut set = |key: &str, value: &str| {
        parameters.push(Parameter {
            key: key.to_owned(),
            value: value.to_owned(),
        });
    };
    if let Some(user) = &spec.user {
        set("user", user);
    }
    if let (true, Some(sock)) = (spec.container_sock, &defaults.sock) {
        set("volume", &format!("{sock}:/var/run/docker.sock"));
        if let Some(group) = &defaults.user_group_id {
            set("group-add", group);
        }
    }
    let port_mappings =
        mapped(spec, placement, network).map(|(host_port, container_port, protocol)| PortMapping {
            host_port,
            container_port,
            protocol,
        });
    ContainerInfo {
        r#type: ContainerType::Docker,
        volumes,
        docker: Some(DockerInfo {
            image,
            network: Some(match network {
                Network::Host => DockerNetwork::Host,
                Network::Bridge => DockerNetwork::Bridge,
                Network::None => DockerNetwork::None,
                Network::Named(_) => DockerNetwork::User,
            }),
            port_mappings: port_mappings.collect(),
            parameters,
            force_pull_image: Some(spec.force_pull),
            ..DockerInfo::default()
        }),
        network_infos: named(network).into_iter().collect(),
        ..ContainerInfo::default()
    }
}

fn mesos(
    spec: &Spec,
    placement: &Placement,
    image: String,
    network: &Network,
    volumes: Vec<Volume>,
) -> ContainerInfo {
    let port_mappings =
        mapped(spec, placement, network).map(|(host_port, container_port, protocol)| NetworkPortMapping {
            host_port,
            container_port,
            protocol,
        });
    let network_infos = named(network).map(|info| NetworkInfo {
        port_mappings: port_mappings.collect(),
        ..info
    });
    ContainerInfo {
        r#type: ContainerType::Mesos,
        volumes,
        mesos: Some(MesosInfo {
            image: Some(Image {
                r#type: ImageType::Docker,
                docker: Some(DockerImage {
                    name: image,
                    ..DockerImage::default()
                }),
                cached: Some(!spec.force_pull),
                ..Image::default()
            }),
        }),
        network_infos: network_infos.into_iter().collect(),
        ..ContainerInfo::default()
    }
}

fn named(network: &Network) -> Option<NetworkInfo> {
    match network {
        Network::Named(name) => Some(NetworkInfo {
            name: Some(name.clone()),
            ..NetworkInfo::default()
        }),
        _ => None,
    }
}

/// Host port, container port and protocol of each port mapping.
fn mapped<'a>(
    spec: &'a Spec,
    placement: &'a Placement,
    network: &Network,
) -> impl Iterator<Item = (u32, u32, Option<String>)> + 'a {
    let own_ports = network.has_own_ports();
    spec.ports
        .iter()
        .zip(&placement.host_ports)
        .filter(move |_| own_ports)
        .map(|(port, host)| {
            let container = port.container_port.unwrap_or(*host);
            (
                u32::from(*host),
                u32::from(container),
                Some(port.protocol.as_str().to_owned()),
            )
        })
}

/// The configured volumes, then the job's own.
fn volumes(spec: &Spec, defaults: &Defaults) -> Vec<Volume> {
    let configured = defaults.volumes.iter().map(|(name, path)| Mount {
        source: name.clone(),
        driver: None,
        container_path: path.clone(),
        read_only: false,
    });
    configured
        .chain(spec.volumes.iter().cloned())
        .map(|mount| volume(mount, spec.containerizer, defaults))
        .collect()
}

fn volume(mount: Mount, containerizer: Containerizer, defaults: &Defaults) -> Volume {
    let mode = if mount.read_only {
        VolumeMode::ReadOnly
    } else {
        VolumeMode::ReadWrite
    };
    let volume = Volume {
        container_path: mount.container_path.clone(),
        mode: Some(mode),
        ..Volume::default()
    };
    if !mount.is_path() {
        let driver = mount.driver.or_else(|| defaults.volume_driver.clone());
        return Volume {
            source: Some(VolumeSource {
                r#type: Some("DOCKER_VOLUME".to_owned()),
                docker_volume: Some(DockerVolume {
                    name: mount.source,
                    driver,
                    ..DockerVolume::default()
                }),
                ..VolumeSource::default()
            }),
            ..volume
        };
    }
    match containerizer {
        Containerizer::Docker => Volume {
            host_path: Some(mount.source),
            ..volume
        },
        Containerizer::Mesos => Volume {
            source: Some(VolumeSource {
                r#type: Some("HOST_PATH".to_owned()),
                host_path: Some(VolumeHostPath { path: mount.source }),
                ..VolumeSource::default()
            }),
            ..volume
        },
    }
}
