//! The grants of a plugin. This module does no I/O: other code resolves names, and the host
//! connects to the address that was checked.
//!
//! `"task"` grants the ports of the probed task. A guarded address ([`Guard`]) needs a grant that
//! names exactly that address; a network that contains it is not enough. Unspecified, multicast and
//! broadcast addresses are never reachable.

use std::{fmt, net::IpAddr};

use transom_registry::network::{Destination, Guard, names_no_peer};

use crate::worlds::probe::Endpoint;

/// Why a connection to a destination is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// No grant covers the destination.
    NotGranted,
    /// The address is guarded, and no grant names exactly this address.
    Guarded(Guard),
    /// An address that no peer can have: unspecified, multicast or broadcast.
    NoPeer,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::NotGranted => f.write_str("no entry of grants.network allows it"),
            Rejection::Guarded(guard @ Guard::Daemon(_)) => write!(
                f,
                "it is {guard}, which only an entry of grants.network with exactly its address and port allows"
            ),
            Rejection::Guarded(guard) => write!(
                f,
                "it is {guard}, which only an entry of grants.network for exactly that address or network allows"
            ),
            Rejection::NoPeer => f.write_str("it is an unspecified, multicast or broadcast address"),
        }
    }
}

/// The `[grants]` of a manifest. By default a plugin may connect nowhere, and a WASI guest may use
/// clocks and random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each grant is a key of the manifest"
)]
pub(crate) struct Grants {
    pub(crate) network: Vec<Destination>,
    pub(crate) command: bool,
    pub(crate) tls_unverified: bool,
    pub(crate) clock: bool,
    pub(crate) random: bool,
    /// Names of variables of the daemon's environment.
    pub(crate) environment: Vec<String>,
    /// Packages or interfaces that an upgrade may import although the previous version did not.
    pub(crate) imports: Vec<String>,
}

impl Default for Grants {
    fn default() -> Self {
        Grants {
            network: Vec::new(),
            command: false,
            tls_unverified: false,
            clock: true,
            random: true,
            environment: Vec::new(),
            imports: Vec::new(),
        }
    }
}

impl Grants {
    /// Whether the plugin may connect to `ip`, an address of `endpoint`, on the port of `endpoint`.
    /// `guard` is the guard of this address and port, if there is one. `task` lists the task's own
    /// endpoints, each with the addresses of its host.
    pub(crate) fn judge(
        &self,
        endpoint: &Endpoint,
        ip: IpAddr,
        guard: Option<&Guard>,
        task: &[(Endpoint, Vec<IpAddr>)],
    ) -> Result<(), Rejection> {
        let ip = ip.to_canonical();
        if names_no_peer(ip) {
            return Err(Rejection::NoPeer);
        }
        let is_of_task = || {
            task.iter().any(|(task_endpoint, ips)| {
                task_endpoint.port == endpoint.port
                    && (task_endpoint.host.eq_ignore_ascii_case(&endpoint.host)
                        || ips.iter().any(|task_ip| task_ip.to_canonical() == ip))
            })
        };
        let allowed = |it: &Destination| match (guard, it) {
            // An agent may run on this machine and be known by a loopback address. The daemon's own
            // ports never belong to a task.
            (None | Some(Guard::Loopback), Destination::Task) => is_of_task(),
            (Some(guard), _) => it.names(endpoint, ip, guard),
            (None, Destination::Name { host, port }) => {
                port.is_none_or(|port| port == endpoint.port) && host.eq_ignore_ascii_case(&endpoint.host)
            }
            (None, Destination::Network { .. }) => it.covers(ip, endpoint.port),
        };
        if self.network.iter().any(allowed) {
            Ok(())
        } else {
            Err(guard.cloned().map_or(Rejection::NotGranted, Rejection::Guarded))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn grants_allow_and_deny_destinations() {
        let task = [(endpoint("agent1", 31000), vec!["10.0.0.5".parse().unwrap()])];
        for (grants, host, port, ip, allowed) in [
            (&["task"][..], "agent1", 31000, "10.0.0.5", true),
            (&["task"], "AGENT1", 31000, "10.0.0.6", true),
            (&["task"], "10.0.0.5", 31000, "10.0.0.5", true),
            (&["task"], "::ffff:10.0.0.5", 31000, "::ffff:10.0.0.5", true),
            (&["task"], "agent1", 31001, "10.0.0.5", false),
            (&["task"], "other", 31000, "10.0.0.7", false),
            (&[], "agent1", 31000, "10.0.0.5", false),
            (&["db:5432"], "db", 5432, "10.9.9.9", true),
            (&["db:5432"], "db", 5433, "10.9.9.9", false),
            (&["db:*"], "db", 5433, "10.9.9.9", true),
            (&["10.0.0.0/8"], "x", 1, "10.255.0.1", true),
            (&["10.0.0.0/8"], "x", 1, "11.0.0.1", false),
            (&["10.0.0.0/8:443"], "x", 80, "10.0.0.1", false),
            (&["[fd00::/8]:443"], "x", 443, "fd12::1", true),
            (&["0.0.0.0/0"], "x", 80, "8.8.8.8", true),
            (&["0.0.0.0/0"], "x", 80, "169.254.169.254", false),
            (&["0.0.0.0/0"], "x", 80, "::ffff:169.254.169.254", false),
            (&["::/0"], "x", 80, "64:ff9b::a9fe:a9fe", false),
            (&["::/0"], "x", 80, "64:ff9b:1::a9fe:a9fe", false),
            (&["::/0"], "x", 80, "::a9fe:a9fe", false),
            (&["::/0"], "x", 80, "2002:a9fe:a9fe::1", false),
            (&["::/0"], "x", 80, "2001:db8::1", true),
            (&["::/0"], "x", 80, "::1", false),
            (&["::/0"], "x", 80, "fe80::1", false),
            (&["::/0"], "x", 80, "fd00:ec2::254", false),
            (&["fd00::/8"], "x", 80, "fd20:ce::254", false),
            (&["[fd00:ec2::23]:80"], "x", 80, "fd00:ec2::23", true),
            (&["168.63.0.0/16"], "x", 80, "168.63.129.16", false),
            (&["0.0.0.0/0"], "x", 80, "100.100.100.200", false),
            (&["meta:80"], "meta", 80, "169.254.169.254", false),
            (&["169.254.169.254:80"], "meta", 80, "169.254.169.254", true),
            (&["169.254.0.0/16"], "meta", 80, "169.254.169.254", true),
            (&["0.0.0.0/0"], "x", 80, "0.0.0.0", false),
            (&["0.0.0.0/0"], "x", 80, "0.0.0.1", false),
            (&["0.0.0.0:80"], "x", 80, "0.0.0.0", false),
            (&["0.0.0.0/0"], "x", 80, "224.0.0.1", false),
            (&["0.0.0.0/0"], "x", 80, "255.255.255.255", false),
            (&["::/0"], "x", 80, "::", false),
            (&["::/0"], "x", 80, "ff02::1", false),
            (&["::/0"], "x", 80, "64:ff9b::", false),
            // A loopback address needs a grant that names it, in whatever form the address is
            // written.
            (&["0.0.0.0/0"], "x", 80, "127.0.0.1", false),
            (&["0.0.0.0/0"], "x", 80, "127.9.9.9", false),
            (&["0.0.0.0/0"], "x", 80, "::ffff:127.0.0.1", false),
            (&["0.0.0.0/0", "::/0"], "127.0.0.1", 80, "127.0.0.1", false),
            (&["0.0.0.0/1"], "x", 80, "127.0.0.1", false),
            (&["126.0.0.0/7"], "x", 80, "127.0.0.1", false),
            (&["::/0"], "x", 80, "64:ff9b::7f00:1", false),
            (&["::/0"], "x", 80, "::7f00:1", false),
            (&["::/0"], "x", 80, "::ffff:0:127.0.0.1", false),
            (&["::/0"], "x", 80, "2002:7f00:1::", false),
            (&["::/127"], "x", 80, "::1", false),
            (&["x:80"], "x", 80, "127.0.0.1", false),
            (&["x:*"], "x", 80, "::1", false),
            (&["127.0.0.0/8"], "x", 80, "127.9.9.9", true),
            (&["127.0.0.0/8:80"], "x", 81, "127.0.0.1", false),
            (&["127.0.0.0/16"], "x", 80, "127.0.0.1", true),
            (&["127.0.0.0/16"], "x", 80, "127.1.0.1", false),
            (&["127.0.0.1:80"], "x", 80, "127.0.0.1", true),
            (&["127.0.0.1:80"], "x", 80, "::ffff:127.0.0.1", true),
            (&["127.0.0.1:*"], "x", 80, "127.0.0.1", true),
            (&["[::ffff:127.0.0.1]:80"], "x", 80, "127.0.0.1", true),
            (&["::ffff:127.0.0.0/104"], "x", 80, "127.0.0.1", true),
            (&["::ffff:0.0.0.0/96"], "x", 80, "127.0.0.1", false),
            (&["::ffff:0.0.0.0/96"], "x", 80, "10.0.0.1", true),
            (&["[::1]:80"], "x", 80, "::1", true),
            (&["::1/128"], "x", 80, "::1", true),
            (&["[::1]:80"], "x", 80, "127.0.0.1", false),
            (&["localhost:80"], "localhost", 80, "127.0.0.1", true),
            (&["localhost:80"], "localhost", 80, "::1", true),
            (&["localhost:80"], "localhost", 80, "169.254.169.254", false),
            (&["localhost:80"], "127.0.0.1", 80, "127.0.0.1", false),
            (&["localhost:80"], "localhost.example", 80, "127.0.0.1", false),
            (&["169.254.0.0/15"], "x", 80, "169.254.1.1", false),
            (&["fe80::/10"], "x", 80, "fe80::1", true),
            (&["fe80::/9"], "x", 80, "fe80::1", false),
        ] {
            let network = grants
                .iter()
                .map(|text| Destination::parse(text).unwrap())
                .collect();
            let grants = Grants {
                network,
                ..Grants::default()
            };
            let ip = ip.parse().unwrap();
            let guard = Guard::of_address(ip);
            let judged = grants.judge(&endpoint(host, port), ip, guard.as_ref(), &task);
            assert_eq!(
                judged.is_ok(),
                allowed,
                "{grants:?} {host}:{port} {ip} {judged:?}"
            );
        }
    }

    fn granted(patterns: &[&str]) -> Grants {
        Grants {
            network: patterns
                .iter()
                .map(|text| Destination::parse(text).unwrap())
                .collect(),
            ..Grants::default()
        }
    }

    #[test]
    fn a_port_of_the_daemon_is_opened_by_its_exact_address_and_port_alone() {
        let guard = Guard::Daemon("the admin port of this daemon".to_owned());
        for (pattern, host, ip, allowed) in [
            ("0.0.0.0/0", "x", "10.0.0.1", false),
            ("0.0.0.0/0:8081", "x", "10.0.0.1", false),
            ("10.0.0.0/31", "x", "10.0.0.1", false),
            ("10.0.0.1:*", "x", "10.0.0.1", false),
            ("10.0.0.1/32", "x", "10.0.0.1", false),
            ("x:8081", "x", "10.0.0.1", false),
            ("10.0.0.1:8082", "x", "10.0.0.1", false),
            ("10.0.0.2:8081", "x", "10.0.0.1", false),
            ("10.0.0.1:8081", "x", "10.0.0.1", true),
            ("10.0.0.1/32:8081", "x", "10.0.0.1", true),
            ("10.0.0.1:8081", "x", "::ffff:10.0.0.1", true),
            ("127.0.0.0/8", "x", "127.0.0.1", false),
            ("127.0.0.0/8:8081", "x", "127.0.0.1", false),
            ("127.0.0.1:*", "x", "127.0.0.1", false),
            ("127.0.0.1:8081", "x", "127.0.0.1", true),
            ("localhost:*", "localhost", "127.0.0.1", false),
            ("localhost:8081", "localhost", "127.0.0.1", true),
            ("localhost:8081", "localhost", "10.0.0.1", false),
        ] {
            let to = endpoint(host, 8081);
            let ip: IpAddr = ip.parse().unwrap();
            // The grant "task" does not allow it either, even if the task claims the port as its
            // own.
            for patterns in [&[pattern][..], &[pattern, "task"]] {
                let task = [(to.clone(), vec![ip])];
                let judged = granted(patterns).judge(&to, ip, Some(&guard), &task);
                let expected = if allowed {
                    Ok(())
                } else {
                    Err(Rejection::Guarded(guard.clone()))
                };
                assert_eq!(judged, expected, "{patterns:?} {host} {ip}");
            }
        }
    }

    #[test]
    fn the_task_is_reached_where_its_agent_is_on_loopback() {
        let task_endpoint = endpoint("agent1", 31000);
        let ip: IpAddr = "127.0.0.2".parse().unwrap();
        let task = [(task_endpoint.clone(), vec![ip])];
        let grants = granted(&["task"]);
        for (host, port, ip, allowed) in [
            ("agent1", 31000, "127.0.0.2", true),
            ("127.0.0.2", 31000, "127.0.0.2", true),
            ("127.0.0.2", 31001, "127.0.0.2", false),
            ("127.0.0.1", 31000, "127.0.0.1", false),
            ("localhost", 31000, "127.0.0.1", false),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            let guard = Guard::of_address(ip);
            let judged = grants.judge(&endpoint(host, port), ip, guard.as_ref(), &task);
            assert_eq!(judged.is_ok(), allowed, "{host}:{port} {judged:?}");
        }
    }

    #[test]
    fn rejection_names_its_reason() {
        let to = endpoint("x", 80);
        let grants = granted(&["0.0.0.0/0"]);
        let why = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            let guard = Guard::of_address(ip);
            let judged = grants.judge(&to, ip, guard.as_ref(), &[]);
            judged.unwrap_err().to_string()
        };
        assert!(why("127.0.0.1").contains("a loopback address, which only"));
        assert!(why("169.254.1.1").contains("a link-local address, which only"));
        assert!(why("100.100.100.200").contains("a metadata address"));
        assert!(why("0.0.0.0").contains("unspecified"));
        assert!(why("2001:db8::1").contains("no entry of grants.network"));
    }

    #[test]
    fn task_grant_does_not_allow_link_local_addresses() {
        let grants = Grants {
            network: vec![Destination::Task],
            ..Grants::default()
        };
        let task_endpoint = endpoint("169.254.169.254", 80);
        let ip: IpAddr = "169.254.169.254".parse().unwrap();
        let judged = grants.judge(
            &task_endpoint,
            ip,
            Some(&Guard::LinkLocal),
            &[(task_endpoint.clone(), vec![ip])],
        );
        assert_eq!(judged, Err(Rejection::Guarded(Guard::LinkLocal)));
    }
}
