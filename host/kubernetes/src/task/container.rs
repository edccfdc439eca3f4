//! The container: image, options of `docker run`, network, volumes.

use std::collections::BTreeMap;

use transom_launch::{Container, ContainerNetwork, Containerizer, Image, Network, Program};

use super::data_volume::{KVSTORE_DATA, SQL_DATA, volume};
use super::{Metadata, ports, tls};
use crate::config::{Config, KindConfig};
use crate::kind::Kind;
use crate::kvstore::DATA_FUNCTIONS;
use crate::secrets::Secrets;
use crate::settings::Engine;

/// The label of a node with the id of its task.
pub(super) const TASK_LABEL: &str = "m3s.aventer.biz/taskid";
/// The container runtime's default network.
const BRIDGE: &str = "bridge";

/// The network alias of a kind in the container runtime's network.
pub(super) fn alias(config: &Config, kind: Kind) -> String {
    format!("{}{kind}", config.name())
}

/// The host name of a container. Each agent has its own name, because a node is named after its host,
/// and so do further servers and datastores.
pub(super) fn hostname(config: &Config, kind: Kind, number: u32) -> String {
    with_domain(config, short_name(config, kind, number))
}

fn short_name(config: &Config, kind: Kind, number: u32) -> String {
    let alias = alias(config, kind);
    match (kind, number) {
        (Kind::Datastore | Kind::Server, 0) => alias,
        _ => format!("{alias}-{number}"),
    }
}

fn with_domain(config: &Config, name: String) -> String {
    match config.settings.domain.trim_start_matches('.') {
        "" => name,
        domain => format!("{name}.{domain}"),
    }
}

/// The container of a task.
pub(super) fn of(
    config: &Config,
    settings: &KindConfig,
    metadata: Metadata,
    clustered: bool,
    host_ports: &[u16],
) -> Container {
    let Metadata { kind, number, .. } = metadata;
    let image = match kind {
        Kind::Datastore => config.settings.ds_image(),
        Kind::Server | Kind::Agent => config.settings.image_orch.as_str(),
    };
    Container {
        image: Some(Image {
            name: image.to_owned(),
            force_pull: true,
            pull_secret: None,
        }),
        hostname: Some(hostname(config, kind, number)),
        network: network(config),
        port_mappings: ports::mappings(config, kind, clustered, host_ports),
        volumes: volume(config, kind, number).into_iter().collect(),
        ..Container::new(Containerizer::Docker {
            privileged: kind != Kind::Datastore,
            parameters: parameters(config, settings, metadata),
        })
    }
}

/// The program of a datastore.
pub(super) fn datastore_program(config: &Config, secrets: &Secrets) -> Program {
    let section = &config.settings;
    if let (Some(command), false) = (&section.ds_command, config.settings.containers) {
        return Program::Shell(command.clone());
    }
    match section.engine() {
        Engine::Sql if section.ds_mysql_ssl => {
            let option = |name: &str, file: &str| format!("--ssl-{name}={SQL_DATA}/{file}.pem");
            Program::EntryPoint(vec![
                option("ca", "ca"),
                option("cert", "server-cert"),
                option("key", "server-key"),
            ])
        }
        Engine::Sql if secrets.tls.is_some() => Program::Shell(tls::sql_server()),
        Engine::Sql => Program::EntryPoint(Vec::new()),
        Engine::Kvstore => Program::Shell(format!(
            "{}find_data {KVSTORE_DATA}\nexport ETCD_DATA_DIR=\"$folder\"\n\
             exec /usr/local/bin/etcd --listen-client-urls {}://0.0.0.0:{} --election-timeout '50000' \
             --heartbeat-interval '5000'",
            DATA_FUNCTIONS,
            secrets.kvstore_scheme(),
            section.ds_port
        )),
    }
}

/// The network of a container. A network of the cluster manager takes precedence over one of the
/// container runtime.
pub(super) fn network(config: &Config) -> Network {
    match (
        config.settings.cluster_network(),
        config.settings.container_cni.as_str(),
    ) {
        (Some(name), _) => Network::Bridge {
            name: Some(name.to_owned()),
            labels: BTreeMap::new(),
        },
        (None, BRIDGE) => Network::Bridge {
            name: Some(String::new()),
            labels: BTreeMap::new(),
        },
        (None, name) => Network::Container(vec![ContainerNetwork::from(name.to_owned())]),
    }
}

/// The options of `docker run`.
fn parameters(config: &Config, settings: &KindConfig, metadata: Metadata) -> Vec<(String, String)> {
    let (containers, kind) = (&config.settings, metadata.kind);
    let mut parameters = Parameters(Vec::new());
    parameters.add("cap-add", "NET_ADMIN");
    let is_node = kind != Kind::Datastore;
    if is_node {
        parameters.add("cap-add", "SYS_ADMIN");
        if let Some(size) = containers.shm_size() {
            parameters.add("shm-size", size);
        }
    }
    let mem = settings.mem_limit.unwrap_or(settings.mem);
    let swap = ((containers.container_memory_swap + mem) / 1024.0).round();
    parameters.add("memory-swap", format!("{swap}g"));
    if is_node {
        parameters.add("ulimit", format!("nofile={}", containers.container_ulimit));
    }
    parameters.0.extend(settings.docker_parameters.iter().cloned());
    if containers.restrict_disk_allocation {
        let disk = settings.disk_limit.unwrap_or(settings.disk);
        parameters.add("storage-opt", format!("size={}mb", disk.trunc()));
    }
    if let Some(runtime) = &containers.container_runtime {
        parameters.add("runtime", runtime);
    }
    if containers.cluster_network().is_none() && containers.container_cni != BRIDGE {
        // Docker knows `net-alias`, too, but Podman knows only this name.
        for alias in network_aliases(config, metadata) {
            parameters.add("network-alias", alias);
        }
    }
    if is_node && containers.cgroup_v2 {
        parameters.add("cgroupns", "private");
    }
    parameters.0
}

/// The names of a container in the container runtime's network: its own, and the ones that all tasks of
/// its kind share. Agents know only the name of server 0, so every server has it. Docker's resolver does
/// not complete names, so each exists with and without the domain.
fn network_aliases(config: &Config, metadata: Metadata) -> Vec<String> {
    let Metadata { kind, number, .. } = metadata;
    // The datastore's alias has no prefix, because upstream's images and scripts expect this name.
    let shared = match kind {
        Kind::Datastore => kind.to_string(),
        Kind::Server | Kind::Agent => alias(config, kind),
    };
    let own = short_name(config, kind, number);
    let mut aliases = vec![shared.clone(), with_domain(config, shared)];
    aliases.extend([own.clone(), with_domain(config, own)]);
    let mut distinct = Vec::new();
    for alias in aliases {
        if !distinct.contains(&alias) {
            distinct.push(alias);
        }
    }
    distinct
}

struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }
}
