//! Parses networks and ports, and translates the deprecated fields for them: `ipAddress`,
//! `container.docker.network`, `container.docker.portMappings` and `ports`.

use std::collections::BTreeSet;

use super::container_input::{ContainerInput, DockerNetwork};
use super::port_input::{self, bad_name, is_name};
use super::reader::Reader;
use super::reader::read_choice;
use super::{App, Container, DefinitionSettings, Engine, Network, NetworkMode, PortDefinition, PortMapping};
use transom_web::Problems;

/// The network that upstream's agents use as a bridge.
pub(crate) const BRIDGE: &str = "mesos-bridge";

/// Networks and ports of an update, without deprecated fields.
#[derive(Clone, Debug, Default)]
pub(super) struct NetworkInput {
    networks: Option<Vec<Network>>,
    definitions: Option<Vec<PortDefinition>>,
    /// Whether the definitions come from the deprecated `ports`, which count in every network.
    from_ports: bool,
    container: Option<Container>,
}

/// The deprecated `ipAddress`.
struct IpAddress {
    network: Network,
    discovery: Option<Vec<PortMapping>>,
}

/// Parses networks and ports. `container` is the container of the same document.
pub(super) fn read(
    reader: &mut Reader<'_>,
    container: Option<ContainerInput>,
    broken: &mut Problems,
) -> NetworkInput {
    let networks = reader.list("networks", |network| Some(read_network(network)));
    let ip_address = reader.nested("ipAddress", read_ip_address);
    let definitions = port_input::read_definitions(reader);
    let ports = port_input::read_numbers(reader);
    let has_ports =
        |ports: &Option<Vec<PortDefinition>>| ports.as_ref().is_some_and(|ports| !ports.is_empty());
    if ip_address.is_some() && (has_ports(&definitions) || has_ports(&ports)) {
        broken.add("/", "cannot specify both an IP address and port");
    }
    one_form_of_ports(definitions.as_deref(), ports.as_deref(), broken);
    let docker_network = container.as_ref().and_then(|container| container.network);
    let canonical = networks.as_ref().is_some_and(|networks| !networks.is_empty());
    if canonical && ip_address.is_some() {
        broken.add("/", "must not specify both networks and ipAddress");
    }
    if canonical && docker_network.is_some() {
        broken.add("/", "must not specify both container.docker.network and networks");
    }
    let translated = translated_network(ip_address.as_ref(), docker_network, broken);
    NetworkInput {
        networks: translated.map(|network| vec![network]).or(networks),
        from_ports: definitions.is_none(),
        definitions: definitions.or(ports),
        container: read_container(container, ip_address, broken),
    }
}

/// Parses one network.
pub(super) fn read_network(network: &mut Reader<'_>) -> Network {
    const PATTERN: &str = "^[a-z0-9]([-a-z0-9_]*[a-z0-9])?$";
    let modes = [
        ("container", NetworkMode::Container),
        ("container/bridge", NetworkMode::Bridge),
        ("host", NetworkMode::Host),
    ];
    let name = network.string("name");
    if name
        .as_ref()
        .is_some_and(|name| !is_name(name, true) || name.len() > 63)
    {
        bad_name(network, "name", PATTERN);
    }
    Network {
        name,
        mode: read_choice(network, "mode", &modes).unwrap_or(NetworkMode::Container),
        labels: network.texts("labels").unwrap_or_default(),
    }
}

fn read_ip_address(address: &mut Reader<'_>) -> IpAddress {
    let name = address.string("networkName");
    if name.as_deref() == Some("") {
        address.problem("networkName", "error.minLength");
    }
    if address.strings("groups").is_some_and(|groups| !groups.is_empty()) {
        address.problem("groups", "groups of an ipAddress are not supported");
    }
    let discovery = address.nested("discovery", |discovery| {
        discovery.list("ports", |port| {
            Some(PortMapping {
                container_port: port.port("number").unwrap_or(0),
                name: Some(port.required("name", "a discovery port needs its name")?),
                protocol: port_input::read_protocol(port),
                labels: port.texts("labels").unwrap_or_default(),
                ..PortMapping::any(None)
            })
        })
    });
    // Upstream also accepts the name of its bridge here.
    let mode = if name.as_deref() == Some(BRIDGE) {
        NetworkMode::Bridge
    } else {
        NetworkMode::Container
    };
    IpAddress {
        network: Network {
            name: name.filter(|_| mode == NetworkMode::Container),
            mode,
            labels: address.texts("labels").unwrap_or_default(),
        },
        discovery: discovery.map(Option::unwrap_or_default),
    }
}

fn one_form_of_ports(
    definitions: Option<&[PortDefinition]>,
    ports: Option<&[PortDefinition]>,
    broken: &mut Problems,
) {
    let numbers = |ports: &[PortDefinition]| -> Vec<u16> { ports.iter().map(|port| port.port).collect() };
    let Some(ports) = ports.map(numbers) else { return };
    if definitions.is_some_and(|definitions| !ports.is_empty() && numbers(definitions) != ports) {
        broken.add("/", "cannot specify both ports and port definitions");
    }
    let fixed = ports.iter().filter(|port| **port != 0);
    if fixed.clone().collect::<BTreeSet<_>>().len() != fixed.count() {
        broken.add("/", "ports must be unique");
    }
}

/// The network that is described by deprecated fields.
fn translated_network(
    address: Option<&IpAddress>,
    docker: Option<DockerNetwork>,
    broken: &mut Problems,
) -> Option<Network> {
    let labels = || {
        address
            .map(|address| address.network.labels.clone())
            .unwrap_or_default()
    };
    match docker {
        None => address.map(|address| address.network.clone()),
        Some(DockerNetwork::Host) => Some(Network::new(NetworkMode::Host)),
        Some(DockerNetwork::Bridge) => Some(Network {
            labels: labels(),
            ..Network::new(NetworkMode::Bridge)
        }),
        Some(DockerNetwork::User) => Some(Network {
            name: address.and_then(|address| address.network.name.clone()),
            labels: labels(),
            ..Network::new(NetworkMode::Container)
        }),
        Some(DockerNetwork::None) => {
            broken.add(
                "/container/docker/network",
                "unsupported docker network type NONE",
            );
            None
        }
    }
}

/// Translates the container's deprecated fields; an `ipAddress` implies a container.
fn read_container(
    input: Option<ContainerInput>,
    address: Option<IpAddress>,
    broken: &mut Problems,
) -> Option<Container> {
    let input = input.or_else(|| {
        address.as_ref().map(|_| ContainerInput {
            container: Container::new(Engine::Mesos),
            network: None,
            port_mappings: None,
        })
    });
    let ContainerInput {
        mut container,
        port_mappings,
        ..
    } = input?;
    let has_ports = |ports: &Option<Vec<PortMapping>>| ports.as_ref().is_some_and(|ports| !ports.is_empty());
    if has_ports(&port_mappings) && has_ports(&container.port_mappings) {
        broken.add(
            "/container/portMappings",
            "cannot specify both portMappings and docker.portMappings",
        );
    }
    container.port_mappings = container.port_mappings.or(port_mappings);
    let discovery = address.and_then(|address| address.discovery);
    if discovery.is_some() && container.engine == Engine::Docker {
        broken.add(
            "/ipAddress",
            "ipAddress/discovery is not allowed for Docker containers",
        );
    } else if has_ports(&discovery) && has_ports(&container.port_mappings) {
        broken.add(
            "/container/portMappings",
            "container.portMappings and ipAddress.discovery.ports must not both be set",
        );
    } else if has_ports(&discovery) {
        container.port_mappings = discovery;
    }
    Some(container)
}

impl NetworkInput {
    /// Sets networks, container and ports of `app`, with their defaults. As in upstream, ports that
    /// do not apply are dropped: mappings in host networking, `portDefinitions` in other networks.
    /// Upstream's earlier versions show both forms for every app in a bridge network.
    pub(super) fn apply(self, app: &mut App, settings: &DefinitionSettings) {
        app.networks = self.networks.unwrap_or_else(|| std::mem::take(&mut app.networks));
        fill_defaults(&mut app.networks, settings);
        let host = app.uses_host_network();
        app.container = self.container.or_else(|| app.container.take());
        if host {
            let present = app.port_definitions.take();
            let default = || vec![PortDefinition::unnamed_default()];
            app.port_definitions = Some(self.definitions.or(present).unwrap_or_else(default));
            if let Some(container) = &mut app.container {
                container.port_mappings = None;
            }
        } else {
            let ports = self.definitions.filter(|_| self.from_ports);
            map_ports(app, ports.map_or(0, |ports| ports.len()));
        }
    }
}

/// Sets the defaults: host networking, and the configured name for container networks without one.
pub(super) fn fill_defaults(networks: &mut Vec<Network>, settings: &DefinitionSettings) {
    if networks.is_empty() {
        networks.push(Network::new(NetworkMode::Host));
    }
    for network in networks {
        if network.mode == NetworkMode::Container && network.name.is_none() {
            network.name.clone_from(&settings.default_network_name);
        }
    }
}

/// Replaces port definitions by mappings, for networks other than host networking: one by default,
/// and at least `count`.
fn map_ports(app: &mut App, count: usize) {
    app.port_definitions = None;
    app.require_ports = false;
    let bridge = app
        .networks
        .iter()
        .any(|network| network.mode == NetworkMode::Bridge);
    let container = app.container.get_or_insert_with(|| Container::new(Engine::Mesos));
    let mappings = container
        .port_mappings
        .get_or_insert_with(|| vec![PortMapping::any(Some(super::port::DEFAULT_NAME))]);
    while mappings.len() < count {
        mappings.push(PortMapping::any(None));
    }
    for mapping in mappings.iter_mut().filter(|_| bridge) {
        mapping.host_port.get_or_insert(0);
    }
}
