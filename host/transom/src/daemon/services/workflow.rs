//! The workflow service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use transom_cluster::v1;
use transom_scheduler::MaintenanceMode;
use transom_web::BoundPort;

use super::{
    BoundService, DevHints, FrameworkService, PortName, Service, ServiceKind, StartContext, waiting_documents,
};
use crate::admin::overview::document::ServiceState;
use crate::config::{self, Settings};
use crate::daemon::reserved::ReservedPort;
use crate::daemon::{Addresses, from_settings};
use crate::exit::{Misconfigured, Unavailable};

/// `[workflow]`
pub(crate) struct Workflow;

#[async_trait]
impl ServiceKind for Workflow {
    fn ports(&self) -> &'static [PortName] {
        &[("workflow", "workflow.port")]
    }

    async fn bind(&self, settings: &Settings, _file: &Path) -> anyhow::Result<Vec<Box<dyn BoundService>>> {
        let Some(section) = &settings.workflow else {
            return Ok(Vec::new());
        };
        let config = service_config(section);
        Ok(vec![Box::new(BoundWorkflow {
            info: framework_info(section, settings.cluster.principal.clone()),
            daemon_prefix: section.http_port().daemon_prefix(&section.framework_name),
            cluster: own_cluster(section, &settings.cluster).context(Misconfigured)?,
            port: config.bind().await.context(Unavailable)?,
            config,
        })])
    }

    fn dev_section(&self) -> &'static str {
        "# The embedded cluster runs no images: a job's command is a process of an agent, whatever its image.\n\
         [workflow]\nlistener = \"127.0.0.1\"\nport = 11000\ncontainers = false\n"
    }

    fn dev_hints(&self, addresses: &Addresses) -> DevHints {
        let Some(workflow) = addresses.get("workflow") else {
            return DevHints::default();
        };
        DevHints {
            addresses: vec![("workflow", format!("http://{workflow}/v0/queue"))],
            commands: vec![format!("transom job run --url http://{workflow} -- echo hello")],
        }
    }
}

struct BoundWorkflow {
    config: transom_workflow::Config,
    port: BoundPort,
    info: v1::FrameworkInfo,
    daemon_prefix: String,
    /// The connection to the cluster manager, if it differs from that of `[cluster]`.
    cluster: Option<transom_cluster::Config>,
}

#[async_trait]
impl BoundService for BoundWorkflow {
    fn ports(&self) -> Vec<ReservedPort> {
        vec![ReservedPort::from_bound(&self.port)]
    }

    fn daemon_prefix(&self) -> Option<String> {
        Some(self.daemon_prefix.clone())
    }

    async fn start(self: Box<Self>, context: &mut StartContext<'_>) -> anyhow::Result<Vec<Box<dyn Service>>> {
        let cluster = match self.cluster {
            Some(own) => context.own_cluster(own).context(Misconfigured)?,
            None => context.cluster.clone(),
        };
        let port = context.forwarded_to(self.port)?;
        let address = port.advertised();
        let framework = context.framework(
            self.info,
            &address,
            cluster.clone(),
            self.config.revive_interval,
            // A running job is not moved before maintenance, because it ends on its own.
            MaintenanceMode::Avoided,
        )?;
        let started = transom_workflow::start(
            self.config,
            port,
            context.plugins.clone(),
            cluster,
            framework.election.leadership(),
            context.registry,
            context.token.child_token(),
        );
        let (service, runner) = started.context(Unavailable)?;
        let (summaries, placements) = (runner.summaries(), Arc::new(runner.explainer()));
        context.run(&service, framework, runner);
        Ok(vec![Box::new(FrameworkService {
            service,
            summary: Box::new(move || state(&summaries)),
            placements,
            explainer: None,
        })])
    }
}

/// The service's part of `/v1/overview`.
fn state(summaries: &transom_workflow::SummaryReader) -> ServiceState {
    let transom_workflow::Summary { numbers, waiting } = summaries.read();
    ServiceState {
        summary: serde_json::json!(numbers),
        waiting: waiting_documents(waiting),
        ..ServiceState::default()
    }
}

fn framework_info(section: &config::Workflow, principal: Option<String>) -> v1::FrameworkInfo {
    v1::FrameworkInfo {
        user: section.user.clone(),
        name: section.framework_name.clone(),
        roles: vec![section.role.clone()],
        failover_timeout: Some(section.failover_timeout as f64),
        checkpoint: Some(section.checkpoint),
        hostname: Some(section.http_port().hostname()),
        principal: section.default_principal.clone().or(principal),
        ..v1::FrameworkInfo::default()
    }
}

/// The cluster manager of `[workflow]`, if it differs from that of `[cluster]` or has other
/// credentials.
fn own_cluster(
    section: &config::Workflow,
    cluster: &config::Cluster,
) -> anyhow::Result<Option<transom_cluster::Config>> {
    if section.master.is_none() && !section.cluster_ssl && !section.authenticate {
        return Ok(None);
    }
    let own = config::Cluster {
        master: section.master.clone().unwrap_or_else(|| cluster.master.clone()),
        ssl: cluster.ssl || section.cluster_ssl,
        ..cluster.clone()
    };
    let mut own = from_settings::cluster_config(&own)?;
    if section.authenticate {
        own.principal.clone_from(&section.default_principal);
        own.credentials = section
            .default_principal
            .clone()
            .zip(section.default_secret.as_ref())
            .map(|(username, secret)| transom_cluster::Credentials {
                username,
                password: secret.clone(),
            });
        // A service account of `[cluster]` takes precedence over these credentials.
        if own.service_account.is_none() {
            "`default_principal` and `default_secret` in [workflow]".clone_into(&mut own.credential_keys);
        }
    }
    Ok(Some(own))
}

fn service_config(section: &config::Workflow) -> transom_workflow::Config {
    let volume = |name: &Option<String>, path: &Option<String>| name.clone().zip(path.clone());
    let volumes = [
        volume(
            &section.container_volume_dag_name,
            &section.container_volume_dag_container_path,
        ),
        volume(
            &section.container_volume_logs_name,
            &section.container_volume_logs_container_path,
        ),
    ];
    let environment = section
        .container_environment
        .iter()
        .map(|variable| (variable.name.clone(), variable.value.reveal().to_owned()));
    transom_workflow::Config {
        port: section.http_port().config(),
        prefix: section.framework_name.clone(),
        defaults: transom_workflow::Defaults {
            containers: section.containers,
            cpus: section.task_cpu,
            mem: section.task_memory,
            disk: section.task_disk,
            image: section.container_image_slave.clone(),
            command_shell: section.command_shell,
            network_mode: section.container_network_mode.clone(),
            environment: environment.collect(),
            volumes: volumes.into_iter().flatten().collect(),
            volume_driver: section.container_volume_driver.clone(),
            sock: section.container_sock.clone(),
            user_group_id: section.container_user_group_id.clone(),
            attributes: section.cluster_attributes.clone(),
            fetch_uri: section.cluster_fetch_uri.clone().filter(|uri| !uri.is_empty()),
            fetch_user: section.cluster_fetch_username.clone(),
        },
        unreachable_grace: Duration::from_secs(section.unreachable_grace_seconds),
        completed_retention: Duration::from_secs(section.completed_retention_seconds),
        max_jobs: section.max_jobs,
        max_jobs_bytes: section.max_jobs_bytes,
        ..transom_workflow::Config::default()
    }
}
