//! The ports of an instance: the numbers that its placement assigns to the ports of its definition,
//! and the addresses at which they are reached.

use std::collections::{BTreeMap, BTreeSet};

use transom_cluster::v1::{NetworkInfo, TaskStatus};
use transom_common::HostPort;
use transom_scheduler::{PortRequest, TaskRecord};

use crate::model::{App, CheckPort, Network, NetworkMode, Protocol};

/// A port of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstancePort<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) protocol: Protocols<'a>,
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// The number in the definition: that of the container's port, if the container has its own
    /// ports; 0: any.
    pub(crate) requested: u16,
    /// The port on the agent; `None`: the container is reached only at its own address.
    pub(crate) host: Option<u16>,
    /// The port in the container; `None`: the container has no ports of its own.
    pub(crate) container: Option<u16>,
    /// The container networks that it belongs to, by name; empty: all.
    pub(crate) networks: &'a [String],
}

/// The protocols of a port, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Protocols<'a>(Vec<&'a str>);

impl<'a> Protocols<'a> {
    /// Their names, such as `tcp` or `http`.
    pub(crate) fn names(&self) -> &[&'a str] {
        &self.0
    }

    /// Those of `tcp` and `udp` that the protocols use. All protocols except `udp` use TCP.
    pub(super) fn transports(&self) -> Vec<&'static str> {
        let mut transports = Vec::new();
        for name in &self.0 {
            let transport = if *name == "udp" { "udp" } else { "tcp" };
            if !transports.contains(&transport) {
                transports.push(transport);
            }
        }
        transports
    }
}

impl From<Protocol> for Protocols<'_> {
    fn from(protocol: Protocol) -> Self {
        Self(protocol.names().to_vec())
    }
}

impl<'a> From<&'a Vec<String>> for Protocols<'a> {
    fn from(names: &'a Vec<String>) -> Self {
        Self(names.iter().map(String::as_str).collect())
    }
}

impl InstancePort<'_> {
    /// The port on which the program listens.
    pub(crate) fn listen_port(&self) -> u16 {
        self.container.or(self.host).unwrap_or_default()
    }

    /// The port that clients use: the one on the agent, if there is one.
    pub(crate) fn client_port(&self) -> u16 {
        self.host.or(self.container).unwrap_or_default()
    }
}

/// The ports to request from the scheduler.
pub(crate) fn requests(app: &App) -> Vec<PortRequest> {
    let required = app.require_ports;
    let defined = app.port_definitions().iter().map(|port| match port.port {
        0 => PortRequest::Random,
        port if required => PortRequest::Fixed(port),
        _ => PortRequest::Random,
    });
    let mapped = app
        .port_mappings()
        .iter()
        .filter_map(|port| match port.host_port? {
            0 => Some(PortRequest::Random),
            port => Some(PortRequest::Fixed(port)),
        });
    defined.chain(mapped).collect()
}

/// The ports of an instance whose task has this id, and these ports of its agent, in the order of
/// [`requests`].
///
/// A port of the container that has neither a number nor a port on the agent gets a number that is
/// derived from the id of the task, so that it is the same whenever it is computed from the task's
/// record.
pub(crate) fn of_instance<'a>(app: &'a App, task: &str, host_ports: &[u16]) -> Vec<InstancePort<'a>> {
    let defined = app.port_definitions().iter().zip(host_ports);
    let defined = defined.map(|(port, host)| InstancePort {
        name: port.name.as_deref(),
        protocol: port.protocol.into(),
        labels: &port.labels,
        requested: port.port,
        host: Some(*host),
        container: None,
        networks: &[],
    });
    let mappings = app.port_mappings();
    let mut taken: BTreeSet<u16> = mappings.iter().map(|mapping| mapping.container_port).collect();
    taken.extend(host_ports);
    let mut hosts = host_ports.iter().copied();
    // An app has either definitions or mappings.
    let mapped = mappings.iter().map_while(|mapping| {
        let host = match mapping.host_port {
            Some(_) => Some(hosts.next()?),
            None => None,
        };
        let container = match (mapping.container_port, host) {
            (0, Some(host)) => host,
            (0, None) => unused_port(task, &mut taken),
            (port, _) => port,
        };
        Some(InstancePort {
            name: mapping.name.as_deref(),
            protocol: mapping.protocol.into(),
            labels: &mapping.labels,
            requested: mapping.container_port,
            host,
            container: Some(container),
            networks: &mapping.network_names,
        })
    });
    defined.chain(mapped).collect()
}

/// Selects a port above 1024 that is not `taken`, by the FNV hash of the task's id, and adds it to
/// `taken`.
pub(super) fn unused_port(task: &str, taken: &mut BTreeSet<u16>) -> u16 {
    const MIN_PORT: u64 = 1025;
    const PORT_COUNT: u64 = 65_535 - MIN_PORT + 1;
    let hash = task.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let ports = (0..PORT_COUNT)
        .filter_map(|step| u16::try_from(MIN_PORT + hash.wrapping_add(step) % PORT_COUNT).ok());
    let port = ports
        .into_iter()
        .find(|port| !taken.contains(port))
        .unwrap_or_default();
    taken.insert(port);
    port
}

/// The address of a port of a running task. `None` for an index without a port, and in a container
/// network while the address of the container is unknown.
///
/// In host and bridge networks it is the agent's address. In container networks it is the address
/// of the container in its last status; as long as that is unknown, a port that is mapped on the
/// agent is reached there.
pub(crate) fn endpoint(app: &App, record: &TaskRecord, port: CheckPort) -> Option<HostPort> {
    match port {
        CheckPort::Port(port) => Some(HostPort::new(address(&app.networks, record, &[])?, port)),
        CheckPort::PortIndex(index) => {
            let ports = of_instance(app, record.id.as_str(), &record.host_ports);
            endpoint_of(app, record, ports.get(usize::from(index))?)
        }
    }
}

/// The same as [`endpoint`], for one of the ports of a running task.
pub(crate) fn endpoint_of(app: &App, record: &TaskRecord, port: &InstancePort<'_>) -> Option<HostPort> {
    endpoint_address(&app.networks, record, port)
}

/// The address of a port of a running task in these networks.
pub(super) fn endpoint_address(
    networks: &[Network],
    record: &TaskRecord,
    port: &InstancePort<'_>,
) -> Option<HostPort> {
    let at_agent = || Some(HostPort::new(record.agent.hostname.clone(), port.host?));
    if !has_addresses(networks) {
        return at_agent();
    }
    match address(networks, record, port.networks) {
        Some(address) => Some(HostPort::new(address, port.listen_port())),
        None => at_agent(),
    }
}

/// Whether each container has its own address in the network.
fn has_addresses(networks: &[Network]) -> bool {
    networks
        .iter()
        .any(|network| network.mode == NetworkMode::Container)
}

/// The address at which the ports of a task are reached, in one of the `named` networks, or in any
/// if none is named.
fn address(networks: &[Network], record: &TaskRecord, named: &[String]) -> Option<String> {
    if !has_addresses(networks) {
        return Some(record.agent.hostname.clone());
    }
    container_address(record.status.as_ref()?, named)
}

fn container_address(status: &TaskStatus, networks: &[String]) -> Option<String> {
    let infos = &status.container_status.as_ref()?.network_infos;
    let named = |info: &&NetworkInfo| {
        // Some agents report no names of networks.
        networks.is_empty() || info.name.as_ref().is_none_or(|name| networks.contains(name))
    };
    let addresses = |info: &NetworkInfo| {
        let listed = info.ip_addresses.iter().filter_map(|it| it.ip_address.clone());
        listed.chain(info.ip_address.clone()).collect::<Vec<String>>()
    };
    infos.iter().filter(named).flat_map(addresses).next()
}

#[cfg(test)]
#[path = "ports_tests.rs"]
mod tests;
