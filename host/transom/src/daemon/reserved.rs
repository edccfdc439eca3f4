//! Reserved addresses: this daemon's ports, its store and its masters. A plugin with a broad grant, or
//! a redirect by a registry, must not lead to a connection to them.

use std::net::SocketAddr;

use transom_cluster::Client;
use transom_config::parts;
use transom_plugin_host::{Reserved, Server};
use transom_web::BoundPort;

/// A port of this daemon.
pub(crate) struct ReservedPort {
    /// The name of the port in `--port`.
    name: &'static str,
    address: SocketAddr,
    /// The host name for other programs, which may resolve to another address.
    advertised: Option<String>,
}

impl ReservedPort {
    pub(crate) fn new(name: &'static str, address: SocketAddr) -> Self {
        Self {
            name,
            address,
            advertised: None,
        }
    }

    pub(crate) fn from_bound(port: &BoundPort) -> Self {
        Self {
            name: port.config().name,
            address: port.addr(),
            advertised: Some(port.advertised()),
        }
    }

    pub(crate) fn reserve(&self, reserved: &Reserved) {
        let description = format!("the {} port of this daemon", self.name);
        reserved.listener(&description, self.address);
        if let Some(advertised) = &self.advertised {
            let servers = parse_server(advertised);
            reserved.servers(&description, move || servers.clone().into_iter().collect());
        }
    }
}

/// Adds the servers of the store. An invalid address is reported when the store is opened.
pub(super) fn reserve_store(reserved: &Reserved, section: &transom_config::Store) {
    let addresses = parts::store::config(section).addresses().unwrap_or_default();
    reserved.servers("the state store of this daemon", move || addresses.clone());
}

/// Adds the configured masters and ZooKeeper servers, and the masters that ZooKeeper names at any
/// time.
pub(super) fn reserve_masters(reserved: &Reserved, client: &Client) {
    let config = client.config();
    let mut configured = Vec::new();
    for text in &config.masters {
        match text.strip_prefix("zk://") {
            Some(rest) => {
                let servers = rest.split('/').next().unwrap_or_default();
                let servers = servers.rsplit_once('@').map_or(servers, |(_, servers)| servers);
                configured.extend(servers.split(',').filter_map(parse_server));
            }
            None => configured.extend(parse_server(text)),
        }
    }
    configured.extend(
        config
            .fallback_masters
            .iter()
            .filter_map(|text| parse_server(text)),
    );
    let client = client.clone();
    reserved.servers("a master of the cluster, or its ZooKeeper", move || {
        let mut servers = configured.clone();
        for master in client.registered_masters() {
            servers.extend(master.ip.map(|ip| (ip.to_string(), master.port)));
            servers.extend(master.hostname.clone().map(|host| (host, master.port)));
        }
        servers
    });
}

/// Parses `host:port` or `[v6]:port`, with or without a scheme.
fn parse_server(text: &str) -> Option<Server> {
    let text = text.trim();
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (host, port) = text.trim_end_matches('/').rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    let port = port.parse().ok()?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses_of_the_configuration_are_parsed() {
        for (text, expected) in [
            ("10.0.0.1:5050", Some(("10.0.0.1", 5050))),
            (" m1.example:5050 ", Some(("m1.example", 5050))),
            ("https://m1.example:5050/", Some(("m1.example", 5050))),
            ("[::1]:5050", Some(("::1", 5050))),
            ("m1.example", None),
            (":5050", None),
            ("", None),
        ] {
            let expected = expected.map(|(host, port): (&str, u16)| (host.to_owned(), port));
            assert_eq!(parse_server(text), expected, "{text:?}");
        }
    }
}
