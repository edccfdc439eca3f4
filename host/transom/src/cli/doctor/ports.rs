//! The ports: whether they are free, or used by a running daemon with this configuration.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;
use transom_cli::{Connection, overview::Overview};
use transom_config::Settings;

use super::Finding;

const CHECK: &str = "ports";
/// Timeout of a request to a daemon that may run.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A port of the configuration.
struct Port {
    /// The key that sets the port.
    key: String,
    address: SocketAddr,
    udp: bool,
}

pub(super) async fn check(settings: &Settings, file: &Path) -> Vec<Finding> {
    let ports = ports(settings);
    let running = ports_of_daemon(file).await;
    // Binding does not block.
    let findings: Vec<Finding> = ports
        .iter()
        .filter_map(|port| problem(port, running.as_ref(), bind(port)))
        .collect();
    if !findings.is_empty() {
        return findings;
    }
    let numbers: BTreeSet<u16> = ports.iter().map(|port| port.address.port()).collect();
    let numbers = numbers
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    vec![Finding::ok(
        CHECK,
        match running {
            Some(_) => format!("{numbers} are served by the running daemon"),
            None => format!("{numbers} are free"),
        },
    )]
}

/// All ports with a fixed number.
fn ports(settings: &Settings) -> Vec<Port> {
    let mut ports = Vec::new();
    let mut add = |key: &str, ip: IpAddr, number: u16, udp: bool| {
        if number != 0 {
            ports.push(Port {
                key: key.to_owned(),
                address: SocketAddr::new(ip, number),
                udp,
            });
        }
    };
    add("admin.port", settings.admin.listener, settings.admin.port, false);
    if let Some(apps) = &settings.apps {
        add("apps.port", apps.listener, apps.port, false);
    }
    for section in settings.kubernetes_ports() {
        let key = format!("{}.port", section.instance.section);
        add(&key, section.listener, section.port, false);
    }
    if let Some(workflow) = &settings.workflow {
        add("workflow.port", workflow.listener, workflow.port, false);
    }
    if let Some(discovery) = &settings.discovery {
        if discovery.dns_on {
            add("discovery.port", discovery.listener, discovery.port, false);
            add("discovery.port", discovery.listener, discovery.port, true);
            for (key, number, udp) in [
                ("discovery.tls_port", discovery.tls_port, false),
                ("discovery.https_port", discovery.https_port, false),
            ] {
                add(key, discovery.listener, number.unwrap_or_default(), udp);
            }
        }
        if discovery.http_on {
            add(
                "discovery.http_port",
                discovery.http_listener,
                discovery.http_port,
                false,
            );
        }
    }
    ports
}

/// The port numbers of the daemon that answers at the admin port of this configuration; `None` if no
/// daemon answers.
async fn ports_of_daemon(file: &Path) -> Option<BTreeSet<u16>> {
    let connection = Connection::from_config_file(file);
    let response = connection.get_text(&["v1", "overview"], TIMEOUT).await.ok()?;
    let overview: Overview = serde_json::from_str(&response)
        .ok()
        .filter(|it: &Overview| it.api > 0)?;
    let ports = overview.services.iter().flat_map(|service| &service.ports);
    let mut numbers: BTreeSet<u16> = ports
        .filter_map(|port| port.address.parse::<SocketAddr>().ok())
        .map(|address| address.port())
        .collect();
    numbers.extend(connection.port());
    Some(numbers)
}

fn bind(port: &Port) -> io::Result<()> {
    if port.udp {
        UdpSocket::bind(port.address).map(drop)
    } else {
        TcpListener::bind(port.address).map(drop)
    }
}

fn problem(port: &Port, running: Option<&BTreeSet<u16>>, bound: io::Result<()>) -> Option<Finding> {
    let error = bound.err()?;
    let Port { key, address, udp } = port;
    let protocol = if *udp { "UDP" } else { "TCP" };
    match error.kind() {
        io::ErrorKind::AddrInUse if running.is_some_and(|ports| ports.contains(&address.port())) => None,
        io::ErrorKind::AddrInUse => Some(
            Finding::error(
                CHECK,
                format!(
                    "{key}: another program uses {protocol} {address}{}",
                    match running {
                        Some(_) => "; the running daemon does not",
                        None => ", and no daemon answers at the admin port",
                    }
                ),
                format!(
                    "`ss -lptn 'sport = :{}'` names it; stop it or set another `{key}`.",
                    address.port()
                ),
            )
            .unavailable(),
        ),
        io::ErrorKind::PermissionDenied => Some(Finding::error(
            CHECK,
            format!("{key}: this user may not use {protocol} {address}"),
            "Ports below 1024 need the capability CAP_NET_BIND_SERVICE (`AmbientCapabilities=` in the systemd unit).",
        )),
        io::ErrorKind::AddrNotAvailable => Some(Finding::error(
            CHECK,
            format!("{key}: {} is not an address of this machine", address.ip()),
            "Set the listener to one of `ip address`, or to 0.0.0.0 for all of them.",
        )),
        _ => Some(Finding::error(
            CHECK,
            format!("{key}: {protocol} {address} cannot be used: {error}"),
            format!("Set another `{key}`."),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn used_ports_are_errors_unless_the_daemon_uses_them() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = Port {
            key: "apps.port".to_owned(),
            address: listener.local_addr().expect("bound"),
            udp: false,
        };
        let daemon_ports = BTreeSet::from([port.address.port()]);
        let finding = |running: Option<&BTreeSet<u16>>| problem(&port, running, bind(&port));
        assert!(finding(Some(&daemon_ports)).is_none());
        for running in [None, Some(&BTreeSet::new())] {
            let finding = finding(running).expect("a problem");
            assert_eq!((finding.state, finding.unavailable), (State::Error, true));
            assert!(
                finding.message.starts_with("apps.port: another program"),
                "{}",
                finding.message
            );
        }
        drop(listener);
        assert!(finding(None).is_none());
    }

    #[test]
    fn foreign_address_is_named() {
        let port = Port {
            key: "apps.port".to_owned(),
            address: "203.0.113.1:8080".parse().expect("an address"),
            udp: true,
        };
        let finding = problem(&port, None, bind(&port)).expect("a problem");
        assert!(
            finding.message.contains("is not an address of this machine"),
            "{}",
            finding.message
        );
    }
}
