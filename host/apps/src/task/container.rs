//! The container of a task.

use std::collections::BTreeMap;

use transom_launch::{
    Container, ContainerNetwork, Containerizer, CsiAccess, CsiVolume, Image, IpcMode, Network, PortMapping,
    Seccomp, Volume, VolumeSource,
};
use transom_scheduler::Placement;

use super::ports::InstancePort;
use super::secret_source;
use crate::model::{self, App, BRIDGE, DRIVER, Engine, ExternalVolume, LinuxInfo, NetworkMode, ReadMode};

/// The container of a task with these ports; `None`: a process of the agent.
pub(super) fn container(app: &App, placement: &Placement, ports: &[InstancePort<'_>]) -> Option<Container> {
    let tty = app.tty == Some(true);
    let none = model::Container::new(Engine::Mesos);
    // A terminal requires a container.
    let defined = app.container.as_ref().or(tty.then_some(&none))?;
    Some(Container {
        image: defined.docker.as_ref().map(|docker| image(app, docker)),
        network: network(&app.networks, defined.engine),
        port_mappings: ports.iter().flat_map(mappings).collect(),
        volumes: defined
            .volumes
            .iter()
            .filter_map(|defined| volume(app, defined))
            .collect(),
        tty,
        ..with_linux_info(containerizer(defined, placement), defined.linux_info.as_ref())
    })
}

/// A container with these Linux options.
pub(super) fn with_linux_info(containerizer: Containerizer, info: Option<&LinuxInfo>) -> Container {
    let ipc = info.and_then(|info| info.ipc_info.as_ref());
    let seccomp = info.and_then(|info| info.seccomp.as_ref());
    Container {
        shm_size_mb: ipc.and_then(|ipc| ipc.shm_size),
        ipc: ipc.map(|ipc| match ipc.mode {
            model::IpcMode::Private => IpcMode::Private,
            model::IpcMode::ShareParent => IpcMode::ShareParent,
        }),
        seccomp: seccomp.map(|seccomp| match &seccomp.profile_name {
            Some(name) => Seccomp::Profile(name.clone()),
            None => Seccomp::Unconfined,
        }),
        ..Container::new(containerizer)
    }
}

/// The containerizer, with its options. As in upstream, Docker containers have a label with the id
/// of their task.
fn containerizer(container: &model::Container, placement: &Placement) -> Containerizer {
    let Some(docker) = container
        .docker
        .as_ref()
        .filter(|_| container.engine == Engine::Docker)
    else {
        return Containerizer::Mesos;
    };
    let defined_parameters = docker.parameters.iter();
    let defined_parameters =
        defined_parameters.map(|parameter| (parameter.key.clone(), parameter.value.clone()));
    let label = ("label".to_owned(), format!("MESOS_TASK_ID={}", placement.task));
    Containerizer::Docker {
        privileged: docker.privileged,
        parameters: defined_parameters.chain([label]).collect(),
    }
}

fn image(app: &App, docker: &model::Docker) -> Image {
    let config = docker.pull_config.as_ref();
    Image {
        name: docker.image.clone(),
        force_pull: docker.force_pull_image,
        pull_secret: config.map(|config| secret_source(&app.secrets, &config.secret)),
    }
}

/// The network of a container that joins these networks.
pub(super) fn network(networks: &[model::Network], engine: Engine) -> Network {
    let of = |mode: NetworkMode| networks.iter().filter(move |network| network.mode == mode);
    if let Some(bridge) = of(NetworkMode::Bridge).next() {
        return Network::Bridge {
            name: (engine == Engine::Mesos).then(|| BRIDGE.to_owned()),
            labels: bridge.labels.clone(),
        };
    }
    let networks: Vec<ContainerNetwork> = of(NetworkMode::Container)
        .map(|network| ContainerNetwork {
            name: network.name.clone().unwrap_or_default(),
            labels: network.labels.clone(),
        })
        .collect();
    if networks.is_empty() {
        Network::Host
    } else {
        Network::Container(networks)
    }
}

/// One mapping for each transport protocol, if the port leads from the agent into the container.
pub(super) fn mappings(port: &InstancePort<'_>) -> Vec<PortMapping> {
    let (Some(host_port), Some(container_port)) = (port.host, port.container) else {
        return Vec::new();
    };
    let mapping = |protocol: &str| PortMapping {
        host_port,
        container_port,
        protocol: protocol.to_owned(),
        networks: port.networks.to_vec(),
    };
    port.protocol.transports().into_iter().map(mapping).collect()
}

/// The mount of a volume; `None` for persistent volumes, which are part of the resources.
fn volume(app: &App, volume: &model::Volume) -> Option<Volume> {
    let (mode, source) = match volume {
        model::Volume::Persistent { .. } => return None,
        model::Volume::Host { mode, host_path, .. } => (*mode, VolumeSource::HostPath(host_path.clone())),
        model::Volume::Secret { secret, .. } => (
            ReadMode::ReadOnly,
            VolumeSource::Secret(secret_source(&app.secrets, secret)),
        ),
        model::Volume::External { mode, external, .. } => (*mode, external_source(app, external)),
    };
    Some(Volume {
        container_path: volume.container_path().to_owned(),
        read_only: mode == ReadMode::ReadOnly,
        source,
    })
}

fn external_source(app: &App, external: &ExternalVolume) -> VolumeSource {
    match external {
        ExternalVolume::Dvdi(volume) => VolumeSource::Docker {
            name: volume.name.clone().unwrap_or_default(),
            driver: volume.options.get(DRIVER).cloned(),
            options: driver_options(volume),
        },
        ExternalVolume::Csi(volume) => {
            let options = &volume.options;
            let capability = &options.capability;
            let sources = |secrets: &BTreeMap<String, String>| {
                let source =
                    |(key, secret): (&String, &String)| (key.clone(), secret_source(&app.secrets, secret));
                secrets.iter().map(source).collect()
            };
            VolumeSource::Csi(CsiVolume {
                plugin: options.plugin_name.clone(),
                id: volume.name.clone(),
                access_mode: capability.access_mode.clone(),
                access: match capability.access_type {
                    model::CsiAccess::Block => CsiAccess::Block,
                    model::CsiAccess::Mount => CsiAccess::Mount {
                        fs_type: capability.fs_type.clone(),
                        flags: capability.mount_flags.clone(),
                    },
                },
                stage_secrets: sources(&options.node_stage_secret),
                publish_secrets: sources(&options.node_publish_secret),
                context: options.volume_context.clone(),
            })
        }
    }
}

/// The options for the driver, without their prefix. The volume's `size` takes precedence over an
/// option of this name.
fn driver_options(volume: &model::DvdiVolume) -> BTreeMap<String, String> {
    let own = volume.options.iter().filter(|(key, _)| *key != DRIVER);
    let mut options: BTreeMap<String, String> = own
        .filter_map(|(key, value)| Some((key.strip_prefix("dvdi/")?.to_owned(), value.trim().to_owned())))
        .collect();
    options.extend(volume.size.map(|size| ("size".to_owned(), size.to_string())));
    options
}
