//! The configuration of the instances of Kubernetes and their frameworks, from `[kubernetes]`.

use std::time::Duration;

use transom_cluster::v1;
use transom_kubernetes::config as service_config;

use crate::{Kubernetes, KubernetesLabel, Settings};

/// The settings of the instances, by the names of their sections.
pub fn services(settings: &Settings) -> Vec<(&'static str, service_config::Config)> {
    let instances = settings.kubernetes().into_iter();
    instances
        .map(|section| (section.instance.section, service(section)))
        .collect()
}

/// The framework that the service registers.
pub fn framework(section: &Kubernetes, principal: Option<String>) -> v1::FrameworkInfo {
    v1::FrameworkInfo {
        user: section.framework_user.clone(),
        name: section.framework_name.clone(),
        roles: vec![section.role.clone()],
        failover_timeout: Some(section.failover_timeout as f64),
        checkpoint: Some(true),
        hostname: Some(hostname(section)),
        principal,
        ..v1::FrameworkInfo::default()
    }
}

/// The configured name, or the listener's address.
fn hostname(section: &Kubernetes) -> String {
    section.http_port().hostname()
}

fn kinds(section: &Kubernetes) -> transom_kubernetes::PerKind<service_config::KindConfig> {
    transom_kubernetes::PerKind {
        datastore: service_config::KindConfig {
            count: section.ds_count,
            cpus: section.ds_cpu,
            mem: section.ds_mem,
            disk: section.ds_disk,
            cpu_limit: section.ds_cpu_limit,
            mem_limit: section.ds_mem_limit,
            disk_limit: section.ds_disk_limit,
            constraint: constraint(section.orch_ds_constraint.as_deref()),
            labels: Vec::new(),
            node_env: Vec::new(),
            docker_parameters: Vec::new(),
        },
        server: service_config::KindConfig {
            count: section.orch_server_count,
            cpus: section.orch_server_cpu,
            mem: section.orch_server_mem,
            disk: section.orch_server_disk,
            cpu_limit: section.orch_server_cpu_limit,
            mem_limit: section.orch_server_mem_limit,
            disk_limit: section.orch_server_disk_limit,
            constraint: constraint(section.orch_server_constraint.as_deref()),
            labels: labels(&section.orch_server_labels),
            node_env: items(&section.orch_server_node_env),
            docker_parameters: items(&section.orch_server_docker_parameters),
        },
        agent: service_config::KindConfig {
            count: section.orch_agent_count,
            cpus: section.orch_agent_cpu,
            mem: section.orch_agent_mem,
            disk: section.orch_agent_disk,
            cpu_limit: section.orch_agent_cpu_limit,
            mem_limit: section.orch_agent_mem_limit,
            disk_limit: section.orch_agent_disk_limit,
            constraint: constraint(section.orch_agent_constraint.as_deref()),
            labels: labels(&section.orch_agent_labels),
            node_env: items(&section.orch_agent_node_env),
            docker_parameters: items(&section.orch_agent_docker_parameters),
        },
    }
}

/// The configuration of one instance.
pub fn service(section: &Kubernetes) -> service_config::Config {
    let datastore = datastore(section);
    service_config::Config {
        port: section.http_port().config(),
        path: section.instance.path.clone(),
        name: section.framework_name.clone(),
        heartbeat_interval: section.heartbeat_interval.duration(),
        max_scale: section.max_scale,
        autoscale: autoscale(section),
        port_range: (section.portrange_from, section.portrange_to),
        kinds: kinds(section),
        containers: service_config::ContainerConfig {
            enabled: section.containers,
            mapped_addresses: section.mapped_addresses,
            cluster_network: section.cluster_cni.clone().filter(|name| !name.is_empty()),
            container_network: section.container_cni.clone(),
            shm_size: Some(section.container_shm_size.clone()).filter(|size| !size.is_empty()),
            open_files: section.container_ulimit,
            memory_swap: section.container_memory_swap,
            domain: section.domain.clone(),
            cgroup_v2: section.cgroup_v2,
            restrict_disk: section.restrict_disk_allocation,
            enforce_limits: section.enforce_task_limits,
            runtime: section.container_runtime.clone(),
            volume_driver: section.volume_driver.clone(),
            time_zone: section.tz.clone(),
        },
        orchestrator: service_config::OrchestratorConfig {
            image: section.image_orch.clone(),
            token: section.orch_token.clone(),
            server_command: section.orch_server_string.clone(),
            agent_command: agent_command(&section.orch_agent_string),
            container_runtime: section.orch_container,
            version: section.orch_version.clone(),
            kubeconfig: section.kubeconfig.clone(),
            kubeconfig_file: section.kubeconfig_file.clone(),
            node_timeout: section.orch_node_timeout.duration(),
            enable_taint: section.orch_enable_taint,
            disable_scheduling: section.orch_disable_scheduling,
            registry_mirror: section.enable_registry_mirror,
            node_env: items(&section.orch_node_env),
            server_port: Some(section.orch_server_port).filter(|port| *port != 0),
            agent_tcp_port: Some(section.orch_agent_tcp_port).filter(|port| *port != 0),
            server_volume: section.volume_orch_server.clone(),
            drain_timeout: section.drain_timeout.duration(),
        },
        datastore,
        bootstrap: service_config::BootstrapConfig {
            url: section.bootstrap_url.clone(),
            max_bytes: section.bootstrap.max_bytes,
            timeout: Duration::from_secs(section.bootstrap.timeout_seconds),
            refresh: Duration::from_secs(section.bootstrap.refresh_seconds),
            advertise: section.bootstrap.advertise.clone(),
        },
        backup: service_config::BackupConfig {
            dir: section.backup.dir.clone(),
            keep: section.backup.keep,
            max_bytes: section.backup.max_bytes,
            timeout: section.backup.timeout.duration(),
            cpus: section.backup.cpu,
            mem: section.backup.mem,
            disk: section.backup.disk,
        },
        store_timeout: transom_store::typed::TIMEOUT,
    }
}

/// The configuration of the autoscaler. `None`: it is off.
fn autoscale(section: &Kubernetes) -> Option<service_config::AutoscaleConfig> {
    let autoscale = &section.agents.autoscale;
    autoscale.enabled.then(|| service_config::AutoscaleConfig {
        min: autoscale.min,
        max: autoscale.maximum(section.max_scale),
        step: autoscale.step,
        scale_up_delay: autoscale.scale_up_delay.duration(),
        scale_down_delay: autoscale.scale_down_delay.duration(),
        cooldown: autoscale.cooldown.duration(),
    })
}

fn datastore(section: &Kubernetes) -> service_config::DatastoreConfig {
    let (engine, image) = if section.ds_etcd {
        (service_config::Engine::Kvstore, &section.image_kvstore)
    } else {
        (service_config::Engine::Sql, &section.image_sql)
    };
    service_config::DatastoreConfig {
        engine,
        image: image.clone(),
        port: section.ds_port,
        peer_port: section.ds_peer_port,
        username: section.ds_mysql_username.clone(),
        password: section.ds_mysql_password.clone(),
        tls: match engine {
            service_config::Engine::Kvstore => section.ds_etcd_tls,
            service_config::Engine::Sql => section.ds_mysql_tls,
        },
        ssl: section.ds_mysql_ssl,
        volume: section.volume_ds.clone(),
        command: section.ds_command.clone(),
        endpoint: section.ds_endpoint.clone(),
    }
}

/// Parses a constraint: a plain host name or `hostname:NAME`. An empty name is no constraint.
fn constraint(text: Option<&str>) -> Option<String> {
    let text = text?.trim();
    let name = text.strip_prefix("hostname:").unwrap_or(text).trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn labels(labels: &[KubernetesLabel]) -> Vec<(String, String)> {
    labels
        .iter()
        .map(|label| (label.key.clone(), label.value.clone()))
        .collect()
}

/// Splits `NAME=VALUE` items. Everything after the first `=` is the value.
fn items(items: &[String]) -> Vec<(String, String)> {
    let split = items.iter().filter_map(|item| item.split_once('='));
    split
        .map(|(name, value)| (name.trim().to_owned(), value.to_owned()))
        .collect()
}

/// The command without `--flannel-backend`. Agents reject this option, because they receive the backend
/// from the server.
fn agent_command(command: &str) -> String {
    let mut words = command.split_whitespace();
    let mut remaining = Vec::new();
    while let Some(word) = words.next() {
        if word == "--flannel-backend" {
            words.next();
        } else if !word.starts_with("--flannel-backend=") {
            remaining.push(word);
        }
    }
    remaining.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_settings_are_parsed() {
        for (text, expected) in [
            (None, None),
            (Some(""), None),
            (Some("hostname:"), None),
            (Some("Agent1.test"), Some("Agent1.test")),
            (Some("hostname: agent1.test"), Some("agent1.test")),
        ] {
            assert_eq!(constraint(text).as_deref(), expected, "{text:?}");
        }
        let expected = [("A".to_owned(), "b=c".to_owned())];
        assert_eq!(items(&["A=b=c".to_owned()]), expected);
        for (command, expected) in [
            ("k3s agent --flannel-backend=vxlan -v", "k3s agent -v"),
            ("k3s agent --flannel-backend vxlan -v", "k3s agent -v"),
            ("k3s  agent", "k3s agent"),
        ] {
            assert_eq!(agent_command(command), expected);
        }
    }
}
