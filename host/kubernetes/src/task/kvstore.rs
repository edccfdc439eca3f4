//! A member of a clustered kvstore: an etcd that is started by a script, with a port for clients and
//! one for the other members.

use std::net::IpAddr;

use transom_common::HostPort;
use transom_launch::Program;
use transom_plugin_host::matcher::Constraint;
use transom_scheduler::Placement;

use super::{container, data_volume};
use crate::config::Config;
use crate::kind::Kind;
use crate::plan::Start;

/// The script, with these functions.
const SCRIPT: &str = concat!(include_str!("../kvstore/data.sh"), include_str!("member.sh"));
/// In milliseconds. A single member has upstream's longer times; in a cluster an election must not take
/// a minute.
const HEARTBEAT_INTERVAL: &str = "500";
/// The milliseconds without a heartbeat after which another leader is elected.
const ELECTION_TIMEOUT: &str = "5000";

/// How a member starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberStart {
    pub(crate) start: Start,
    /// The addresses of the other members for clients.
    pub(crate) others: Vec<HostPort>,
    /// Where its data are; `None`: it needs no data, or they are available on every host.
    pub(crate) home: Option<DataHost>,
}

/// Where a member ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataHost {
    /// The host name of its agent.
    pub(crate) host: String,
    /// Its host ports, which the other members know.
    pub(crate) ports: Vec<u16>,
}

/// The name of a member in its etcd cluster.
pub(crate) fn member_name(config: &Config, number: u32) -> String {
    let alias = container::alias(config, Kind::Datastore);
    match number {
        0 => alias,
        _ => format!("{alias}-{number}"),
    }
}

/// Whether tasks reach each other by the host names of agents.
fn uses_agent_addresses(config: &Config) -> bool {
    !config.settings.containers || config.settings.mapped_addresses
}

/// The address at which servers and the other members reach a member.
pub(crate) fn client_address(config: &Config, number: u32, host: &str, host_ports: &[u16]) -> HostPort {
    address(config, number, host, host_ports.first(), config.settings.ds_port)
}

fn address(
    config: &Config,
    number: u32,
    host: &str,
    host_port: Option<&u16>,
    container_port: u16,
) -> HostPort {
    match host_port {
        Some(port) if uses_agent_addresses(config) => HostPort::new(host, *port),
        _ => HostPort::new(
            container::hostname(config, Kind::Datastore, number),
            container_port,
        ),
    }
}

/// Constraints that spread members over different agents, if there are enough. A member that returns
/// is bound to the host with its data.
pub(super) fn constraints(host: Option<&str>, member: &MemberStart) -> Vec<Constraint> {
    let home = member.home.as_ref().map(|home| home.host.as_str());
    super::pinned_or_spread(home.or(host))
}

/// The program of a member.
pub(super) fn program() -> Program {
    Program::Shell(SCRIPT.to_owned())
}

/// The variables of the script and of etcd.
pub(super) fn variables(
    config: &Config,
    number: u32,
    member: &MemberStart,
    scheme: &str,
    placement: &Placement,
) -> Vec<(&'static str, String)> {
    let (section, host, ports) = (&config.settings, &placement.agent.hostname, &placement.host_ports);
    let (listener, client_port, peer_port, data) = if config.settings.containers {
        let data = data_volume::KVSTORE_DATA.to_owned();
        (
            "0.0.0.0",
            Some(&section.ds_port),
            Some(&section.ds_peer_port),
            data,
        )
    } else {
        // etcd can listen only on an IP address, not on a host name.
        let is_address = host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4());
        let listener = if is_address { host } else { "0.0.0.0" };
        let data = data_volume::volume_name(config, Kind::Datastore, number);
        (listener, ports.first(), ports.get(1), data)
    };
    let url = |address: HostPort| format!("{scheme}://{address}");
    let listening = |port: Option<&u16>| url(HostPort::new(listener, port.copied().unwrap_or_default()));
    // Certificates do not name the unspecified address.
    let own = if listener == "0.0.0.0" {
        "127.0.0.1"
    } else {
        listener
    };
    let own = url(HostPort::new(own, client_port.copied().unwrap_or_default()));
    let client = client_address(config, number, host, ports);
    let peer = address(config, number, host, ports.get(1), section.ds_peer_port);
    let others: Vec<String> = member.others.iter().cloned().map(url).collect();
    vec![
        ("KVSTORE_START", member.start.as_str().to_owned()),
        ("KVSTORE_OTHERS", others.join(",")),
        ("KVSTORE_SELF", own),
        ("ETCD_NAME", member_name(config, number)),
        ("ETCD_DATA_DIR", data),
        ("ETCD_LISTEN_CLIENT_URLS", listening(client_port)),
        ("ETCD_LISTEN_PEER_URLS", listening(peer_port)),
        ("ETCD_ADVERTISE_CLIENT_URLS", url(client)),
        ("ETCD_INITIAL_ADVERTISE_PEER_URLS", url(peer)),
        ("ETCD_HEARTBEAT_INTERVAL", HEARTBEAT_INTERVAL.to_owned()),
        ("ETCD_ELECTION_TIMEOUT", ELECTION_TIMEOUT.to_owned()),
    ]
}

#[cfg(test)]
mod tests;
