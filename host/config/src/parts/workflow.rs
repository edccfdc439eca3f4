//! The configuration of workflow and its framework, from `[workflow]`.

use std::time::Duration;

use transom_cluster::v1;

use super::cluster;
use crate::{Cluster, Workflow};

/// The framework that the service registers.
pub fn framework(section: &Workflow, principal: Option<String>) -> v1::FrameworkInfo {
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
pub fn own_cluster(section: &Workflow, cluster: &Cluster) -> anyhow::Result<Option<transom_cluster::Config>> {
    if section.master.is_none() && !section.cluster_ssl && !section.authenticate {
        return Ok(None);
    }
    let own = Cluster {
        master: section.master.clone().unwrap_or_else(|| cluster.master.clone()),
        ssl: cluster.ssl || section.cluster_ssl,
        ..cluster.clone()
    };
    let mut own = cluster::config(&own)?;
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

/// The configuration of the service.
pub fn service(section: &Workflow) -> transom_workflow::Config {
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
