//! Parses a container.

use super::reader::Reader;
use super::reader::read_choice;
use super::{
    Container, Docker, Engine, IpcInfo, IpcMode, LinuxInfo, Parameter, PortMapping, PullConfig, Seccomp,
    port_input, volume_input,
};
use transom_web::Problems;

/// A container as a client gives it, with deprecated fields.
#[derive(Clone, Debug)]
pub(super) struct ContainerInput {
    pub(super) container: Container,
    /// `docker.network`.
    pub(super) network: Option<DockerNetwork>,
    /// `docker.portMappings`.
    pub(super) port_mappings: Option<Vec<PortMapping>>,
}

/// The deprecated `docker.network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DockerNetwork {
    Host,
    Bridge,
    User,
    None,
}

/// Parses the `container` member.
pub(super) fn read(reader: &mut Reader<'_>, broken: &mut Problems) -> Option<ContainerInput> {
    reader.nested("container", |container| {
        let engines = [("MESOS", Engine::Mesos), ("DOCKER", Engine::Docker)];
        let engine = read_choice(container, "type", &engines).unwrap_or(Engine::Docker);
        if container.raw("appc").is_some() {
            broken.add(
                container.path("appc"),
                "images of the kind appc are not supported",
            );
        }
        let mut input = ContainerInput {
            container: Container {
                linux_info: container.nested("linuxInfo", read_linux_info),
                volumes: volume_input::read(container).unwrap_or_default(),
                port_mappings: port_input::read_mappings(container),
                ..Container::new(engine)
            },
            network: None,
            port_mappings: None,
        };
        container.nested("docker", |docker| read_docker(docker, &mut input, broken));
        input
    })
}

fn read_docker(docker: &mut Reader<'_>, input: &mut ContainerInput, broken: &mut Problems) {
    let networks = [
        ("BRIDGE", DockerNetwork::Bridge),
        ("HOST", DockerNetwork::Host),
        ("NONE", DockerNetwork::None),
        ("USER", DockerNetwork::User),
    ];
    input.network = read_choice(docker, "network", &networks);
    input.port_mappings = port_input::read_mappings(docker);
    let image = docker.required("image", "a container's docker needs its image");
    let parameters = docker.list("parameters", |parameter| {
        let key = parameter.required("key", "a parameter needs its key");
        if parameter.raw("value").is_none() {
            parameter.problem("value", "is undefined: a parameter needs its value");
        }
        let value = parameter.string("value");
        Some(Parameter {
            key: key?,
            value: value?,
        })
    });
    let parameters = parameters.unwrap_or_default();
    let pull_config = read_pull_config(docker);
    let privileged = docker.boolean("privileged").unwrap_or(false);
    let mut reject = |key: &str, present: bool| {
        if present {
            broken.add(docker.path(key), "must be empty");
        }
    };
    reject("credential", docker.raw("credential").is_some());
    if input.container.engine == Engine::Mesos {
        let mappings = input
            .port_mappings
            .as_ref()
            .is_some_and(|ports| !ports.is_empty());
        reject("network", input.network.is_some());
        reject("parameters", !parameters.is_empty());
        reject("portMappings", mappings);
        if privileged {
            broken.add(
                docker.path("privileged"),
                "privileged is not supported with the Mesos containerizer",
            );
        }
    }
    let force_pull_image = docker.boolean("forcePullImage").unwrap_or(false);
    input.container.docker = image.map(|image| Docker {
        image,
        force_pull_image,
        pull_config,
        privileged,
        parameters,
    });
}

/// Parses `pullConfig` of an image.
pub(super) fn read_pull_config(image: &mut Reader<'_>) -> Option<PullConfig> {
    let config = image.nested("pullConfig", |config| {
        let secret = config.required("secret", "a pullConfig needs its secret");
        secret.map(|secret| PullConfig { secret })
    });
    config.flatten()
}

/// Parses `linuxInfo`.
pub(super) fn read_linux_info(info: &mut Reader<'_>) -> LinuxInfo {
    LinuxInfo {
        seccomp: info.nested("seccomp", |seccomp| Seccomp {
            profile_name: seccomp.string("profileName"),
            unconfined: seccomp.boolean("unconfined").unwrap_or(false),
        }),
        ipc_info: info.nested("ipcInfo", read_ipc_info).flatten(),
    }
}

fn read_ipc_info(ipc: &mut Reader<'_>) -> Option<IpcInfo> {
    let modes = [
        ("PRIVATE", IpcMode::Private),
        ("SHARE_PARENT", IpcMode::ShareParent),
    ];
    if ipc.raw("mode").is_none() {
        ipc.problem(
            "mode",
            "is undefined: ipcInfo needs its mode, PRIVATE or SHARE_PARENT",
        );
    }
    let mode = read_choice(ipc, "mode", &modes);
    let shm_size = ipc.count("shmSize");
    Some(IpcInfo {
        mode: mode?,
        shm_size,
    })
}
