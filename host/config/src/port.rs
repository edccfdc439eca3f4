//! The ports of several sections together.

use std::net::SocketAddr;

use transom_web::{LoopbackTrust, PortConfig, PortSettings, port_settings};

use super::Settings;
use super::settings::Admin;
use crate::{Apps, Workflow};

impl Admin {
    fn http_port(&self) -> PortSettings<'_> {
        port_settings!(
            self,
            "admin",
            None,
            Some(&self.trusted_networks),
            LoopbackTrust::UnlessCredentials,
            [username, password],
            [read_only_username, read_only_password]
        )
    }
}

impl Settings {
    /// The admin port. The host names in the services' sections are names of this port too.
    pub fn admin_port(&self) -> PortConfig {
        let kubernetes = self.kubernetes_ports();
        let services = self.apps.iter().map(Apps::http_port);
        let services = services.chain(kubernetes.iter().map(|section| section.http_port()));
        let services = services.chain(self.workflow.iter().map(Workflow::http_port));
        let names = services.map(|port| port.hostname());
        let mut admin = self.admin.http_port().config();
        admin.hostname = String::new();
        admin
            .allowed_hosts
            .extend(names.filter_map(|name| name.parse().ok()));
        admin
    }

    /// Problems of the ports of `[admin]`, `[apps]` and `[kubernetes]`, one line each. Those of
    /// `[workflow]` are reported with the other problems of that section.
    pub(super) fn port_problems(&self) -> Vec<String> {
        let kubernetes = self.kubernetes_ports();
        let ports = [self.admin.http_port()].into_iter();
        let ports = ports.chain(self.apps.iter().map(Apps::http_port));
        let ports = ports.chain(kubernetes.iter().map(|section| section.http_port()));
        ports.flat_map(|port| port.problems()).collect()
    }

    /// TCP ports that two sections would listen on, one line each. Those of two Kubernetes instances
    /// are reported with the other problems of these.
    pub(super) fn shared_ports(&self) -> Vec<String> {
        let mut ports = self.tcp_ports();
        ports.retain(|(_, address)| address.port() != 0);
        let is_kubernetes = |key: &str| key.starts_with("kubernetes");
        let mut problems = Vec::new();
        for (index, (key, address)) in ports.iter().enumerate() {
            let other = ports[..index].iter().find(|(other_key, other)| {
                overlap(*address, *other) && !(is_kubernetes(key) && is_kubernetes(other_key))
            });
            if let Some((other, _)) = other {
                problems.push(format!(
                    "`{key}` is {}, the same as `{other}`: each needs a different port",
                    address.port()
                ));
            }
        }
        problems
    }

    /// The TCP ports of all sections, each with its key and address.
    fn tcp_ports(&self) -> Vec<(String, SocketAddr)> {
        let kubernetes = self.kubernetes_ports();
        let http = [self.admin.http_port()].into_iter();
        let http = http.chain(self.apps.iter().map(Apps::http_port));
        let http = http.chain(self.workflow.iter().map(Workflow::http_port));
        let http = http.chain(kubernetes.iter().map(|section| section.http_port()));
        let mut ports: Vec<_> = http
            .map(|port| {
                let address = SocketAddr::new(port.listener, port.port);
                (format!("{}.port", port.section), address)
            })
            .collect();
        if let Some(discovery) = &self.discovery {
            let dns = |port| Some(SocketAddr::new(discovery.listener, port));
            let http = SocketAddr::new(discovery.http_listener, discovery.http_port);
            for (key, address) in [
                ("port", dns(discovery.port).filter(|_| discovery.dns_on)),
                ("http_port", Some(http).filter(|_| discovery.http_on)),
                ("tls_port", discovery.tls_port.and_then(dns)),
                ("https_port", discovery.https_port.and_then(dns)),
            ] {
                ports.extend(address.map(|address| (format!("discovery.{key}"), address)));
            }
        }
        ports
    }
}

/// Whether both cannot be listened on at the same time. `::` includes all IPv4 addresses.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers =
        |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one.port() == other.port() && (one.ip() == other.ip() || covers(one, other) || covers(other, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).expect("settings")
    }

    #[test]
    fn the_same_rules_apply_to_every_port() {
        for (section, prefix) in [("admin", ""), ("apps", "api_"), ("workflow", "api_")] {
            let (user, password) = (format!("{prefix}username"), format!("{prefix}password"));
            let reader = format!("{prefix}read_only_username");
            let reader_password = format!("{prefix}read_only_password");
            let with_both = format!("{user} = \"u\"\n{password} = \"p\"\n");
            let exposed = "listener = \"10.0.0.1\"\n";
            for (text, expected) in [
                (String::new(), None),
                (with_both.clone(), None),
                (format!("{exposed}{with_both}"), None),
                (format!("{exposed}trusted_networks = [\"10.0.0.0/8\"]\n"), None),
                (
                    exposed.to_owned(),
                    Some(format!("`{section}.listener` is 10.0.0.1")),
                ),
                (
                    format!("{user} = \"u\"\n"),
                    Some(format!("`{section}.{password}` is missing")),
                ),
                (
                    format!("{password} = \"p\"\n"),
                    Some(format!("`{section}.{user}` is missing")),
                ),
                (
                    format!("{exposed}{user} = \"u\"\n"),
                    Some(format!("`{section}.{password}` is missing")),
                ),
                (
                    format!("{user} = \"u:v\"\n{password} = \"p\"\n"),
                    Some(format!("`{section}.{user}` is \"u:v\"")),
                ),
                (
                    format!("{user} = \"u\"\n{password} = \"\"\n"),
                    Some(format!("`{section}.{password}` is empty")),
                ),
                (
                    format!("{with_both}{reader} = \"r\"\n{reader_password} = \"q\"\n"),
                    None,
                ),
                (
                    format!("{with_both}{reader} = \"r\"\n"),
                    Some(format!("`{section}.{reader_password}` is missing")),
                ),
                (
                    format!("{with_both}{reader} = \"r\"\n{reader_password} = \"\"\n"),
                    Some(format!("`{section}.{reader_password}` is empty")),
                ),
                (
                    format!("{with_both}{reader} = \"u\"\n{reader_password} = \"q\"\n"),
                    Some("the two users need different names".to_owned()),
                ),
                (
                    format!("{reader} = \"r\"\n{reader_password} = \"q\"\n"),
                    Some(format!(
                        "`{section}.{reader}` is set and `{section}.{user}` is not"
                    )),
                ),
                (
                    "tls_key = \"key.pem\"\n".to_owned(),
                    Some(format!("`{section}.tls_certificate` is missing")),
                ),
            ] {
                let settings = settings(&format!("[{section}]\n{text}"));
                let mut problems = settings.port_problems();
                problems.extend(settings.workflow.iter().flat_map(|it| it.http_port().problems()));
                let all = problems.join("\n");
                match expected {
                    None => assert!(problems.is_empty(), "[{section}] {text}: {all}"),
                    Some(expected) => {
                        assert_eq!(problems.len(), 1, "[{section}] {text}: {all}");
                        assert!(all.contains(&expected), "[{section}] {text}: {all}");
                    }
                }
            }
        }
    }

    #[test]
    fn apps_port_on_all_addresses_needs_a_host_name() {
        let with = |section: &str, more: &str| {
            settings(&format!(
                "[{section}]\nlistener = \"0.0.0.0\"\ntrusted_networks = [\"10.0.0.0/8\"]\n{more}"
            ))
        };
        let problems = with("apps", "").port_problems();
        assert!(problems[0].contains("`apps.hostname` is missing"), "{problems:?}");
        assert!(with("apps", "hostname = \"a\"\n").port_problems().is_empty());
        assert!(with("admin", "").port_problems().is_empty());
    }

    #[test]
    fn two_sections_on_one_port_are_reported() {
        for (text, expected) in [
            (
                "[apps]\nport = 8080\n[workflow]\nport = 8080\n",
                vec!["`workflow.port` is 8080, the same as `apps.port`"],
            ),
            (
                "[apps]\nport = 80\nlistener = \"0.0.0.0\"\n[workflow]\nport = 80\nlistener = \"::1\"\n",
                vec![],
            ),
            (
                "[apps]\nport = 80\nlistener = \"::\"\n[workflow]\nport = 80\n",
                vec!["`workflow.port` is 80, the same as `apps.port`"],
            ),
            ("[apps]\nport = 0\n[workflow]\nport = 0\n", vec![]),
            (
                "[apps]\nport = 80\n[workflow]\nport = 80\nlistener = \"127.0.0.2\"\n",
                vec![],
            ),
            (
                "[discovery]\nport = 9990\n",
                vec!["`discovery.port` is 9990, the same as `admin.port`"],
            ),
            ("[discovery]\nport = 9990\ndns_on = false\n", vec![]),
            (
                "[discovery]\nport = 5353\ntls_port = 5353\n",
                vec!["`discovery.tls_port` is 5353, the same as `discovery.port`"],
            ),
        ] {
            let problems = settings(text).shared_ports();
            assert_eq!(problems.len(), expected.len(), "{text}: {problems:?}");
            for (problem, expected) in problems.iter().zip(expected) {
                assert!(problem.starts_with(expected), "{text}: {problem}");
            }
        }
    }

    #[test]
    fn the_admin_port_accepts_the_host_names_of_the_services() {
        let settings = settings(
            "[apps]\nhostname = \"a.example\"\n[workflow]\nhostname = \"b.example\"\n\
             [admin]\nallowed_hosts = [\"c.example\"]\n",
        );
        let hosts = settings.admin_port().allowed_hosts;
        let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["c.example", "a.example", "b.example"]);
    }
}
