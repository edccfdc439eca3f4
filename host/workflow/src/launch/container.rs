//! The container of a job: image, network, volumes.

use std::collections::BTreeMap;

use transom_launch::{Container, Containerizer, Image, Network, PortMapping, Volume, VolumeSource};
use transom_scheduler::Placement;

use crate::Settings;
use crate::model::{self, Mount, Spec};

pub(super) fn container(spec: &Spec, defaults: &Settings, placement: &Placement) -> Container {
    let image = spec
        .image
        .clone()
        .or_else(|| defaults.container_image_slave.clone());
    let containerizer = match spec.containerizer {
        model::Containerizer::Docker => Containerizer::Docker {
            privileged: false,
            parameters: parameters(spec, defaults),
        },
        model::Containerizer::Mesos => Containerizer::Mesos,
    };
    Container {
        image: Some(Image {
            name: image.unwrap_or_default(),
            force_pull: spec.force_pull,
            pull_secret: None,
        }),
        network: network(
            spec.network_mode
                .as_deref()
                .unwrap_or(&defaults.container_network_mode),
        ),
        port_mappings: port_mappings(spec, placement),
        volumes: volumes(spec, defaults),
        ..Container::new(containerizer)
    }
}

/// Options of `docker run`: the job's user and the container runtime's socket.
fn parameters(spec: &Spec, defaults: &Settings) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    let mut set = |key: &str, value: &str| parameters.push((key.to_owned(), value.to_owned()));
    if let Some(user) = &spec.user {
        set("user", user);
    }
    if let (true, Some(sock)) = (spec.container_sock, &defaults.container_sock) {
        set("volume", &format!("{sock}:/var/run/docker.sock"));
        if let Some(group) = &defaults.container_user_group_id {
            set("group-add", group);
        }
    }
    parameters
}

/// The network of a mode, in upper or lower case. Any other word is the name of a network.
fn network(mode: &str) -> Network {
    match mode.to_ascii_uppercase().as_str() {
        "HOST" => Network::Host,
        "BRIDGE" => Network::Bridge {
            name: None,
            labels: BTreeMap::new(),
        },
        "NONE" => Network::None,
        _ => Network::Container(vec![mode.to_owned().into()]),
    }
}

fn port_mappings(spec: &Spec, placement: &Placement) -> Vec<PortMapping> {
    let mapping = |(port, host_port): (&model::JobPort, &u16)| PortMapping {
        host_port: *host_port,
        container_port: port.container_port.unwrap_or(*host_port),
        protocol: port.protocol.as_str().to_owned(),
        networks: Vec::new(),
    };
    spec.ports
        .iter()
        .zip(&placement.host_ports)
        .map(mapping)
        .collect()
}

/// The configured volumes, then the job's own.
fn volumes(spec: &Spec, defaults: &Settings) -> Vec<Volume> {
    let configured = defaults.volumes().map(|(name, path)| Mount {
        source: name.to_owned(),
        driver: None,
        container_path: path.to_owned(),
        read_only: false,
    });
    configured
        .chain(spec.volumes.iter().cloned())
        .map(|mount| volume(mount, defaults))
        .collect()
}

fn volume(mount: Mount, defaults: &Settings) -> Volume {
    let source = if mount.is_path() {
        VolumeSource::HostPath(mount.source)
    } else {
        VolumeSource::Docker {
            name: mount.source,
            driver: mount.driver.or_else(|| defaults.container_volume_driver.clone()),
            options: BTreeMap::new(),
        }
    };
    Volume {
        container_path: mount.container_path,
        read_only: mount.read_only,
        source,
    }
}
