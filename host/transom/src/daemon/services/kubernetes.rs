//! The Kubernetes service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use transom_cluster::v1;
use transom_kubernetes::{Instance, Resources, config as service};
use transom_scheduler::MaintenanceMode;
use transom_web::BoundPort;

use super::{BoundService, DevHints, FrameworkService, PortName, Service, ServiceKind, StartContext};
use crate::admin::overview::document::{ServiceState, Waiting};
use crate::config::{self, Settings};
use crate::daemon::Addresses;
use crate::daemon::reserved::ReservedPort;
use crate::exit::Unavailable;

/// The minimum interval of REVIVE calls. It can be long, because there are few tasks, and they are
/// launched one after another.
const REVIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the master does not offer the rest of an accepted offer again. The program that this one
/// replaces uses the same time.
const REFUSE_REST: Duration = Duration::from_secs(5);

/// `[kubernetes]`
pub(crate) struct Kubernetes;

#[async_trait]
impl ServiceKind for Kubernetes {
    fn ports(&self) -> &'static [PortName] {
        &[("kubernetes", "kubernetes.port")]
    }

    async fn bind(&self, settings: &Settings, _file: &Path) -> anyhow::Result<Vec<Box<dyn BoundService>>> {
        let mut bound: Vec<Box<dyn BoundService>> = Vec::new();
        if settings.kubernetes().is_empty() {
            return Ok(bound);
        }
        for ignored in config::ignored_kubernetes_variables() {
            tracing::warn!("{ignored}");
        }
        for section in settings.kubernetes_ports() {
            let mut instances = settings.kubernetes();
            // Instances with a path share the port of `[kubernetes]`.
            instances.retain(|one| match one.instance.path.as_str() {
                "" => std::ptr::eq(*one, section),
                _ => settings
                    .kubernetes
                    .as_ref()
                    .is_some_and(|shared| std::ptr::eq(shared, section)),
            });
            bound.push(Box::new(
                BoundKubernetes::bind(section, &instances, settings).await?,
            ));
        }
        Ok(bound)
    }

    /// Empty, because tasks of this service need images, and the embedded cluster of `transom dev` may
    /// have no container runtime.
    fn dev_section(&self) -> &'static str {
        ""
    }

    fn dev_hints(&self, _addresses: &Addresses) -> DevHints {
        DevHints::default()
    }
}

/// A bound port with the instances that it serves.
struct BoundKubernetes {
    instances: Vec<BoundInstance>,
    port: BoundPort,
    /// The port for scripts only.
    scripts: Option<BoundPort>,
    daemon_prefix: String,
}

struct BoundInstance {
    name: &'static str,
    config: service::Config,
    info: v1::FrameworkInfo,
}

impl BoundKubernetes {
    async fn bind(
        section: &config::Kubernetes,
        instances: &[&config::Kubernetes],
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let port = section.http_port();
        let first = instances.first().map(|instance| instance.framework_name.as_str());
        let configs: Vec<_> = instances
            .iter()
            .map(|instance| service_config(instance))
            .collect();
        let bound = service::Config::bind_for(&configs, port.config()).await;
        let number = Some(section.bootstrap.port).filter(|number| *number != 0);
        let scripts = number.map(|number| service::script_port(&port.config(), number));
        let scripts = match scripts {
            Some(scripts) => Some(
                service::Config::bind_for(&configs, scripts)
                    .await
                    .context(Unavailable)?,
            ),
            None => None,
        };
        let instances = instances
            .iter()
            .zip(configs)
            .map(|(instance, config)| BoundInstance {
                name: instance.instance.section,
                config,
                info: framework_info(instance, settings.cluster.principal.clone()),
            });
        Ok(Self {
            instances: instances.collect(),
            port: bound.context(Unavailable)?,
            scripts,
            daemon_prefix: port.daemon_prefix(first.unwrap_or_default()),
        })
    }
}

#[async_trait]
impl BoundService for BoundKubernetes {
    fn ports(&self) -> Vec<ReservedPort> {
        let ports = std::iter::once(&self.port).chain(&self.scripts);
        ports.map(ReservedPort::from_bound).collect()
    }

    fn daemon_prefix(&self) -> Option<String> {
        Some(self.daemon_prefix.clone())
    }

    async fn start(self: Box<Self>, context: &mut StartContext<'_>) -> anyhow::Result<Vec<Box<dyn Service>>> {
        let port = context.forwarded_to(self.port)?;
        let (address, scheme) = (port.advertised(), port.scheme());
        let (mut frameworks, mut instances) = (Vec::new(), Vec::new());
        for BoundInstance { name, config, info } in self.instances {
            let info = v1::FrameworkInfo {
                webui_url: Some(format!("{scheme}://{address}{}", config.path)),
                ..info
            };
            let mut framework = context.framework(
                info,
                &address,
                context.cluster.clone(),
                REVIVE_INTERVAL,
                MaintenanceMode::Avoided,
            )?;
            framework.refuse_rest = Some(REFUSE_REST);
            instances.push(Instance {
                name,
                config,
                election: framework.election.leadership(),
            });
            frameworks.push(framework);
        }
        let resources = Resources {
            plugins: context.plugins,
            cluster: context.cluster,
            registry: context.registry,
            token: context.token.child_token(),
        };
        let started = transom_kubernetes::start(instances, port, self.scripts, resources);
        let mut services: Vec<Box<dyn Service>> = Vec::new();
        for ((service, runner), framework) in started.context(Unavailable)?.into_iter().zip(frameworks) {
            let (summaries, placements) = (runner.summaries(), Arc::new(runner.explainer()));
            context.run(&service, framework, runner);
            services.push(Box::new(FrameworkService {
                service,
                summary: Box::new(move || state(&summaries)),
                placements,
                explainer: None,
            }));
        }
        Ok(services)
    }
}

/// The service's part of `/v1/overview`.
fn state(summaries: &transom_kubernetes::SummaryReader) -> ServiceState {
    let transom_kubernetes::Summary { numbers, waiting } = summaries.read();
    let waiting = waiting.into_iter().map(|(kind, reason)| Waiting {
        name: kind.to_owned(),
        message: Some(reason),
        ..Waiting::default()
    });
    ServiceState {
        summary: serde_json::json!(numbers),
        waiting: waiting.collect(),
        ..ServiceState::default()
    }
}

/// The settings of the instances, by the names of their sections.
pub(crate) fn kubernetes_settings(settings: &Settings) -> Vec<(&'static str, service::Config)> {
    let instances = settings.kubernetes().into_iter();
    instances
        .map(|section| (section.instance.section, service_config(section)))
        .collect()
}

fn framework_info(section: &config::Kubernetes, principal: Option<String>) -> v1::FrameworkInfo {
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
fn hostname(section: &config::Kubernetes) -> String {
    section.http_port().hostname()
}

fn kinds(section: &config::Kubernetes) -> transom_kubernetes::PerKind<service::KindConfig> {
    transom_kubernetes::PerKind {
        datastore: service::KindConfig {
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
        server: service::KindConfig {
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
        agent: service::KindConfig {
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

fn service_config(section: &config::Kubernetes) -> service::Config {
    let datastore = datastore(section);
    service::Config {
        port: section.http_port().config(),
        path: section.instance.path.clone(),
        name: section.framework_name.clone(),
        heartbeat_interval: section.heartbeat_interval.duration(),
        max_scale: section.max_scale,
        autoscale: autoscale(section),
        port_range: (section.portrange_from, section.portrange_to),
        kinds: kinds(section),
        containers: service::ContainerConfig {
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
        orchestrator: service::OrchestratorConfig {
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
        bootstrap: service::BootstrapConfig {
            url: section.bootstrap_url.clone(),
            max_bytes: section.bootstrap.max_bytes,
            timeout: Duration::from_secs(section.bootstrap.timeout_seconds),
            refresh: Duration::from_secs(section.bootstrap.refresh_seconds),
            advertise: section.bootstrap.advertise.clone(),
        },
        backup: service::BackupConfig {
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
fn autoscale(section: &config::Kubernetes) -> Option<service::AutoscaleConfig> {
    let autoscale = &section.agents.autoscale;
    autoscale.enabled.then(|| service::AutoscaleConfig {
        min: autoscale.min,
        max: autoscale.maximum(section.max_scale),
        step: autoscale.step,
        scale_up_delay: autoscale.scale_up_delay.duration(),
        scale_down_delay: autoscale.scale_down_delay.duration(),
        cooldown: autoscale.cooldown.duration(),
    })
}

fn datastore(section: &config::Kubernetes) -> service::DatastoreConfig {
    let (engine, image) = if section.ds_etcd {
        (service::Engine::Kvstore, &section.image_kvstore)
    } else {
        (service::Engine::Sql, &section.image_sql)
    };
    service::DatastoreConfig {
        engine,
        image: image.clone(),
        port: section.ds_port,
        peer_port: section.ds_peer_port,
        username: section.ds_mysql_username.clone(),
        password: section.ds_mysql_password.clone(),
        tls: match engine {
            service::Engine::Kvstore => section.ds_etcd_tls,
            service::Engine::Sql => section.ds_mysql_tls,
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

fn labels(labels: &[config::KubernetesLabel]) -> Vec<(String, String)> {
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
