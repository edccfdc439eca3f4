//! The host ports that a task requests, and their mapping to ports of the container.
//!
//! The ports are in the range from `PORTRANGE_FROM` to `PORTRANGE_TO`, as far as the offer contains
//! them. The first server's API gets the first port of the range, if the offer contains it; all other
//! ports begin with the next one. A configured port of the API is that of every server, because each may
//! become the one that clients use, and is outside of these rules.

use std::collections::BTreeMap;

use transom_launch::{Port, PortMapping};
use transom_scheduler::PortRequest;

use crate::config::Config;
use crate::kind::Kind;

/// The port of the server's API in its container.
pub(super) const API_PORT: u16 = 6443;
/// The second mapped port of the server's container, for HTTP.
const SERVER_HTTP_PORT: u16 = 8080;

/// A port in a container.
struct ContainerPort {
    number: u16,
    /// The name that discovery announces.
    name: String,
    /// The protocol that discovery announces.
    protocol: &'static str,
}

/// The ports of a kind's containers, in order; `clustered`: of a clustered kvstore.
fn of(config: &Config, kind: Kind, clustered: bool) -> Vec<ContainerPort> {
    let port = |number, name: &str, protocol| ContainerPort {
        number,
        name: name.to_owned(),
        protocol,
    };
    match kind {
        Kind::Datastore => {
            let mut ports = vec![port(config.settings.ds_port, "datastore", "tcp")];
            ports.extend(clustered.then(|| port(config.settings.ds_peer_port, "datastore-peer", "tcp")));
            ports
        }
        Kind::Server => vec![
            port(API_PORT, "kubernetes", "tcp"),
            port(SERVER_HTTP_PORT, "http", "tcp"),
        ],
        Kind::Agent => {
            let named = |suffix: &str| format!("{}-{suffix}", config.name());
            let mut ports = vec![
                port(80, &named("http"), "http"),
                port(443, &named("https"), "https"),
            ];
            let more = config.settings.agent_tcp_port();
            ports.extend(more.map(|number| port(number, &named("tcp"), "tcp")));
            ports
        }
    }
}

/// The ports in the containers of a kind.
pub(crate) fn container_ports(config: &Config, kind: Kind) -> impl Iterator<Item = u16> + use<> {
    of(config, kind, false).into_iter().map(|port| port.number)
}

/// The requested host ports; `former`: former ports, which are requested again.
pub(super) fn requests(
    config: &Config,
    kind: Kind,
    number: u32,
    clustered: bool,
    former: &[u16],
) -> Vec<PortRequest> {
    let (first, last) = (config.settings.portrange_from, config.settings.portrange_to);
    let has_first = kind == Kind::Server && number == 0;
    let from = if has_first { first } else { first.saturating_add(1) };
    // The scheduler assigns the lowest free ports to overlapping ranges, in order.
    let mut requests = vec![PortRequest::Range(from, last); of(config, kind, clustered).len()];
    let api = config.settings.server_port().filter(|_| kind == Kind::Server);
    let fixed = if former.is_empty() { api.as_slice() } else { former };
    for (request, port) in requests.iter_mut().zip(fixed) {
        *request = PortRequest::Fixed(*port);
    }
    requests
}

/// The mappings of the agent's host ports to the container's ports.
pub(super) fn mappings(config: &Config, kind: Kind, clustered: bool, host_ports: &[u16]) -> Vec<PortMapping> {
    of(config, kind, clustered)
        .into_iter()
        .zip(host_ports)
        .map(|(port, host_port)| PortMapping {
            host_port: *host_port,
            container_port: port.number,
            protocol: "tcp".to_owned(),
            networks: Vec::new(),
        })
        .collect()
}

/// The ports that discovery announces.
pub(super) fn discovery_ports(config: &Config, kind: Kind, clustered: bool, host_ports: &[u16]) -> Vec<Port> {
    of(config, kind, clustered)
        .into_iter()
        .zip(host_ports)
        .map(|(port, host_port)| Port {
            number: *host_port,
            name: Some(port.name),
            protocol: port.protocol.to_owned(),
            labels: BTreeMap::new(),
        })
        .collect()
}
