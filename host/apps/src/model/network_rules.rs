//! Rules of networks and ports.

use std::collections::BTreeSet;

use super::{App, Engine, Network, NetworkMode, PortMapping};
use transom_web::Problems;

/// Adds the problems of the app's networks and ports.
pub(super) fn check(app: &App, problems: &mut Problems) {
    networks(&app.networks, problems);
    let container_networks = count(&app.networks, NetworkMode::Container);
    if app.engine() == Some(Engine::Docker) && container_networks > 1 {
        problems.add(
            "/",
            "may only specify a single container network when using the Docker container engine",
        );
    }
    let numbers = app.port_definitions().iter().map(|port| port.port);
    if repeats(numbers.filter(|port| *port != 0)) {
        problems.add("/portDefinitions", "Ports must be unique.");
    }
    let path = if app.uses_host_network() {
        "/portDefinitions"
    } else {
        "/container/portMappings"
    };
    if repeats(app.port_names()) {
        problems.add(path, "Port names must be unique.");
    }
    mappings(app.port_mappings(), &app.networks, problems);
}

/// Adds the problems of the networks of an app or a pod.
pub(super) fn networks(networks: &[Network], problems: &mut Problems) {
    let mut add = |text: &str| problems.add("/networks", text);
    let of = |mode: NetworkMode| networks.iter().filter(move |network| network.mode == mode);
    let named = |network: &Network| network.name.as_ref().is_some_and(|name| !name.is_empty());
    if of(NetworkMode::Host).any(|network| named(network) || !network.labels.is_empty()) {
        add("Host networks may not have names or labels");
    }
    if of(NetworkMode::Bridge).any(named) {
        add("Bridge networks may not have names");
    }
    let unnamed = of(NetworkMode::Container).filter(|network| network.name.is_none());
    let unnamed = unnamed.count();
    if unnamed > 1 || repeats(networks.iter().filter_map(|network| network.name.as_ref())) {
        add("Duplicate networks are not allowed");
    }
    let counts =
        [NetworkMode::Host, NetworkMode::Bridge, NetworkMode::Container].map(|mode| count(networks, mode));
    if !matches!(counts, [0..=1, 0, 0] | [0, 0..=1, 0] | [0, 0, _]) {
        add("May specify a single host network, single bridge network, or else 1-to-n container networks");
    }
    if unnamed > 0 {
        add("Network name must be specified when container network is selected.");
    }
}

fn mappings(mappings: &[PortMapping], networks: &[Network], problems: &mut Problems) {
    let networks = NetworkNames::of(networks);
    for (index, mapping) in mappings.iter().enumerate() {
        let path = format!("/container/portMappings({index})");
        networks.check(
            &mapping.network_names,
            mapping.host_port.is_some(),
            &path,
            problems,
        );
    }
}

/// The networks of an app or a pod, for the rules of its ports.
pub(super) struct NetworkNames<'a> {
    names: BTreeSet<&'a str>,
    /// The first names, for errors.
    shown: String,
    several_container_networks: bool,
}

impl<'a> NetworkNames<'a> {
    pub(super) fn of(networks: &'a [Network]) -> Self {
        const MAX_SHOWN: usize = 10;
        let names = || networks.iter().filter_map(|network| network.name.as_deref());
        let first: Vec<&str> = names().take(MAX_SHOWN).collect();
        Self {
            names: names().collect(),
            shown: first.join(",")
                + if names().nth(MAX_SHOWN).is_some() {
                    ",…"
                } else {
                    ""
                },
            several_container_networks: count(networks, NetworkMode::Container) > 1,
        }
    }

    /// Adds the problems of the networks that a port names. `on_agent`: whether the port has a port
    /// on the agent.
    pub(super) fn check(&self, names: &[String], on_agent: bool, path: &str, problems: &mut Problems) {
        if on_agent && names.len() != 1 && self.several_container_networks {
            problems.add(
                path,
                "networkNames must be a single item list when hostPort is specified and more than 1 container \
                 network is defined",
            );
        }
        for (at, name) in names.iter().enumerate() {
            if !self.names.contains(name.as_str()) {
                let text = format!("is not one of ({})", self.shown);
                problems.add(format!("{path}/networkNames({at})"), text);
            }
        }
    }
}

fn count(networks: &[Network], mode: NetworkMode) -> usize {
    networks.iter().filter(|network| network.mode == mode).count()
}

/// Whether an item occurs twice.
pub(super) fn repeats<T: Ord>(items: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().any(|item| !seen.insert(item))
}
