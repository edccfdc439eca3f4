//! The apps service.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use transom_cluster::v1::{self, CapabilityType};
use transom_scheduler::MaintenanceMode;
use transom_web::{BoundPort, Folder};

use super::{
    BoundService, DevHints, FrameworkService, PortName, Service, ServiceKind, StartContext, waiting_documents,
};
use crate::admin::overview::document::{Deployment, ServiceState, Unhealthy};
use crate::config::{
    self, CheckRunner, Feature, GpuScheduling, Maintenance, OnDeadline, PlanFormat, Settings,
};
use crate::daemon::Addresses;
use crate::daemon::reserved::ReservedPort;
use crate::exit::{Misconfigured, Unavailable};

/// `[apps]`
pub(crate) struct Apps;

#[async_trait]
impl ServiceKind for Apps {
    fn ports(&self) -> &'static [PortName] {
        &[("apps", "apps.port")]
    }

    async fn bind(&self, settings: &Settings, _file: &Path) -> anyhow::Result<Vec<Box<dyn BoundService>>> {
        let Some(section) = &settings.apps else {
            return Ok(Vec::new());
        };
        let mut config = service_config(section, &settings.store);
        config.callbacks.allow = transom_apps::destinations(&section.callbacks.allow)
            .map_err(|text| anyhow::anyhow!("`apps.callbacks.allow` contains {text:?}"))
            .context(Misconfigured)?;
        config.ui = user_interface(section).await.context(Misconfigured)?;
        Ok(vec![Box::new(BoundApps {
            info: framework_info(section, settings.cluster.principal.clone()),
            daemon_prefix: section.http_port().daemon_prefix(&section.framework_name),
            maintenance: maintenance(section),
            port: config.bind().await.context(Unavailable)?,
            config,
        })])
    }

    fn dev_section(&self) -> &'static str {
        "[apps]\nlistener = \"127.0.0.1\"\nport = 8080\n"
    }

    fn dev_hints(&self, addresses: &Addresses) -> DevHints {
        let Some(apps) = addresses.get("apps") else {
            return DevHints::default();
        };
        DevHints {
            addresses: vec![("apps", format!("http://{apps}/v2/apps"))],
            commands: vec![
                format!(
                    "curl -s http://{apps}/v2/apps -H 'Content-Type: application/json' -d @examples/apps/http.json"
                ),
                format!("curl -sN http://{apps}/v2/events -H 'Accept: text/event-stream'"),
                format!("curl -s http://{apps}/v2/tasks"),
            ],
        }
    }
}

struct BoundApps {
    config: transom_apps::Config,
    port: BoundPort,
    info: v1::FrameworkInfo,
    maintenance: MaintenanceMode,
    daemon_prefix: String,
}

#[async_trait]
impl BoundService for BoundApps {
    fn ports(&self) -> Vec<ReservedPort> {
        vec![ReservedPort::from_bound(&self.port)]
    }

    fn daemon_prefix(&self) -> Option<String> {
        Some(self.daemon_prefix.clone())
    }

    async fn start(self: Box<Self>, context: &mut StartContext<'_>) -> anyhow::Result<Vec<Box<dyn Service>>> {
        let port = context.forwarded_to(self.port)?;
        let address = port.advertised();
        let cluster = context.cluster.clone();
        let framework = context.framework(
            self.info,
            &address,
            cluster.clone(),
            self.config.revive_interval,
            self.maintenance,
        )?;
        let plugins = context.plugins.clone();
        let dependencies = transom_apps::Dependencies::new(
            plugins.clone(),
            &cluster,
            context.reserved.clone(),
            context.registry,
        );
        let started = transom_apps::start(
            self.config,
            port,
            Arc::clone(&context.store()?.store),
            dependencies,
            framework.election.leadership(),
            context.token.child_token(),
        );
        let (service, runner) = started.await.context(Unavailable)?;
        let explainer = runner.explainer(plugins);
        let summaries = runner.summaries();
        context.run(&service, framework, runner);
        Ok(vec![Box::new(FrameworkService {
            service,
            summary: Box::new(move || state(&summaries)),
            placements: Arc::new(explainer.clone()),
            explainer: Some(explainer),
        })])
    }
}

/// The service's part of `/v1/overview`.
fn state(summaries: &transom_apps::SummaryReader) -> ServiceState {
    let transom_apps::Summary {
        numbers,
        waiting,
        unhealthy,
        deployments,
    } = summaries.read();
    let unhealthy = unhealthy
        .into_iter()
        .map(|(name, instances)| Unhealthy { name, instances });
    let deployments = deployments.into_iter().map(|one| Deployment {
        id: one.id,
        subject: one.subject,
        since: one.since,
        step: one.step,
        steps: one.steps,
    });
    ServiceState {
        summary: serde_json::json!(numbers),
        waiting: waiting_documents(waiting),
        unhealthy: unhealthy.collect(),
        deployments: deployments.collect(),
    }
}

fn framework_info(section: &config::Apps, principal: Option<String>) -> v1::FrameworkInfo {
    let port = section.http_port();
    v1::FrameworkInfo {
        user: section.user.clone(),
        name: section.framework_name.clone(),
        roles: vec![section.role.clone()],
        failover_timeout: Some(section.failover_timeout as f64),
        checkpoint: Some(true),
        hostname: Some(port.hostname()),
        webui_url: Some(format!(
            "{}://{}:{}",
            port.scheme(),
            port.hostname(),
            port.number()
        )),
        principal,
        // The master offers agents with GPUs only to frameworks with this capability.
        capabilities: section
            .enable_features
            .contains(&Feature::GpuResources)
            .then(|| CapabilityType::GpuResources.into())
            .into_iter()
            .collect(),
        ..v1::FrameworkInfo::default()
    }
}

/// The settings of the service and its framework; `None` if the service is not enabled.
pub(crate) fn apps_settings(settings: &Settings) -> Option<(transom_apps::Config, v1::FrameworkInfo)> {
    let section = settings.apps.as_ref()?;
    Some((
        service_config(section, &settings.store),
        framework_info(section, settings.cluster.principal.clone()),
    ))
}

/// The folder of the user interface, if one is configured.
async fn user_interface(section: &config::Apps) -> anyhow::Result<Option<Folder>> {
    let Some(path) = &section.ui_dir else {
        return Ok(None);
    };
    let folder = Folder::open(path).await;
    folder.map(Some).context("apps.ui_dir")
}

fn maintenance(section: &config::Apps) -> MaintenanceMode {
    match section.maintenance {
        Maintenance::Ignore => MaintenanceMode::Ignored,
        Maintenance::Avoid => MaintenanceMode::Avoided,
        Maintenance::Evacuate => MaintenanceMode::Evacuated {
            ahead: Duration::from_secs(section.draining_seconds),
        },
    }
}

/// The features that the service can switch; `task_killing` is always on.
fn features(section: &config::Apps) -> BTreeSet<transom_apps::Feature> {
    let feature = |feature: &Feature| match feature {
        Feature::ExternalVolumes => Some(transom_apps::Feature::ExternalVolumes),
        Feature::GpuResources => Some(transom_apps::Feature::GpuResources),
        Feature::Secrets => Some(transom_apps::Feature::Secrets),
        Feature::TaskKilling => None,
    };
    section.enable_features.iter().filter_map(feature).collect()
}

fn service_config(section: &config::Apps, store: &config::Store) -> transom_apps::Config {
    let mut port = section.http_port().config();
    port.limits.max_body = section.max_body;
    port.limits.max_requests = section.max_concurrent_requests;
    port.limits.max_streams = section.events.max_streams;
    transom_apps::Config {
        port,
        prefix: section.framework_name.clone(),
        framework_name: section.framework_name.clone(),
        role: section.role.clone(),
        user: section.user.clone(),
        failover_timeout: Duration::from_secs(section.failover_timeout),
        shared_store: !store.server.starts_with("file:"),
        max_running_deployments: section.max_running_deployments,
        max_apps: section.max_apps,
        max_instances: section.max_instances,
        max_versions: section.max_versions,
        max_definitions_bytes: section.max_definitions_bytes as u64,
        max_versions_bytes: section.max_versions_bytes as u64,
        service_ports: section.local_port_min..=section.local_port_max,
        launch_timeout: Duration::from_secs(section.task_launch_timeout_seconds),
        env_vars_prefix: section.env_vars_prefix.clone(),
        features: features(section),
        gpus: match section.gpu_scheduling_behavior {
            GpuScheduling::Restricted => transom_apps::GpuScheduling::Restricted,
            GpuScheduling::Unrestricted => transom_apps::GpuScheduling::Unrestricted,
        },
        deployments: transom_apps::Deployments {
            deadline: section.deployments.deadline_seconds,
            on_deadline: match section.deployments.on_deadline {
                OnDeadline::Rollback => transom_apps::OnDeadline::Rollback,
                OnDeadline::Fail => transom_apps::OnDeadline::Fail,
            },
        },
        default_network_name: Some(section.default_network_name.clone()).filter(|name| !name.is_empty()),
        checks: transom_apps::Checks {
            network: match section.checks.network_from {
                CheckRunner::Daemon => transom_apps::Network::Host,
                CheckRunner::Agent => transom_apps::Network::Cluster,
            },
            exec: match section.checks.exec_from {
                CheckRunner::Daemon => transom_apps::Exec::Host,
                CheckRunner::Agent => transom_apps::Exec::Cluster,
            },
        },
        check_concurrency: section.checks.concurrency.get(),
        health_concurrency: section.health.concurrency.get(),
        callbacks: transom_apps::Callbacks {
            allow: Vec::new(),
            attempts: section.callbacks.attempts,
            timeout: Duration::from_secs(section.callbacks.timeout_seconds.get()),
        },
        events: transom_apps::Events {
            plan_format: match section.events.plan_format {
                PlanFormat::Both => transom_apps::PlanForm::Both,
                PlanFormat::Flat => transom_apps::PlanForm::Flat,
                PlanFormat::Upstream => transom_apps::PlanForm::Upstream,
            },
            buffer_events: section.events.buffer_events.get(),
            buffer_bytes: section.events.buffer_bytes,
            parameters: section.events.parameters.clone(),
        },
        ..transom_apps::Config::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn maintenance_mode_is_that_of_the_settings() {
        let seconds = Duration::from_secs;
        let evacuated = |ahead| MaintenanceMode::Evacuated { ahead };
        for (text, expected) in [
            ("", evacuated(seconds(300))),
            ("draining_seconds = 7", evacuated(seconds(7))),
            ("maintenance = \"avoid\"", MaintenanceMode::Avoided),
            ("maintenance = \"ignore\"", MaintenanceMode::Ignored),
        ] {
            let section: config::Apps = toml::from_str(text).unwrap();
            assert_eq!(maintenance(&section), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn ui_dir_without_an_index_is_a_configuration_error() {
        let dir = tempfile::tempdir().unwrap();
        let of = async |path: &Path| {
            let section = config::Apps {
                ui_dir: Some(path.to_owned()),
                ..config::Apps::default()
            };
            user_interface(&section).await
        };
        for (path, expected) in [
            (dir.path().join("absent"), "cannot be read"),
            (dir.path().to_owned(), "has no index.html that can be read"),
        ] {
            let error = format!("{:#}", of(&path).await.unwrap_err());
            let expected = format!("apps.ui_dir: {} {expected}: ", path.display());
            assert!(error.starts_with(&expected), "{error}");
        }
        std::fs::write(dir.path().join("index.html"), "<html>").unwrap();
        assert!(of(dir.path()).await.unwrap().is_some());
        assert_eq!(user_interface(&config::Apps::default()).await.unwrap(), None);
    }

    #[test]
    fn settings_are_passed_to_the_service() {
        let settings: Settings = toml::from_str(
            "[store]\nserver = \"file:x\"\n[apps]\nmax_concurrent_requests = 3\nmax_body = 4096\nuser = \"svc\"\n\
             max_running_deployments = 5\nmax_apps = 6\nmax_versions = 7\nlocal_port_min = 8\nlocal_port_max = 9\n\
             task_launch_timeout_seconds = 10\nfailover_timeout = 11\nmax_instances = 16\n\
             max_definitions_bytes = 17\nmax_versions_bytes = 18\n\
             deployments = {deadline_seconds = 12, on_deadline = \"fail\"}\n\
             events = {buffer_events = 13, buffer_bytes = 14, max_streams = 15, parameters = [\"tenant\"]}\n",
        )
        .expect("settings");
        let apps = settings.apps.expect("on");
        let config = service_config(&apps, &settings.store);
        assert_eq!(config.port.limits.max_requests, Some(3));
        assert_eq!(config.port.limits.max_body, 4096);
        assert_eq!(config.max_running_deployments, 5);
        assert_eq!((config.max_apps, config.max_versions), (Some(6), 7));
        assert_eq!(config.max_instances, 16);
        assert_eq!(
            (config.max_definitions_bytes, config.max_versions_bytes),
            (17, 18)
        );
        assert_eq!(config.service_ports, 8..=9);
        assert_eq!(config.launch_timeout, Duration::from_secs(10));
        assert_eq!(config.failover_timeout, Duration::from_secs(11));
        assert_eq!(config.user, "svc");
        assert_eq!(config.deployments.deadline, Some(12));
        assert_eq!(config.deployments.on_deadline, transom_apps::OnDeadline::Fail);
        assert_eq!(
            (config.events.buffer_events, config.events.buffer_bytes),
            (13, 14)
        );
        assert_eq!(config.port.limits.max_streams, 15);
        assert_eq!(config.events.parameters, ["tenant".to_owned()].into());
        assert!(!config.shared_store);
        let redis = config::Store::default();
        assert!(service_config(&apps, &redis).shared_store);
        // Both crates have the same defaults.
        let (from_settings, defaults) = (
            service_config(&config::Apps::default(), &redis),
            transom_apps::Config::default(),
        );
        assert_eq!(from_settings.port.limits, defaults.port.limits);
        assert_eq!(
            from_settings.max_running_deployments,
            defaults.max_running_deployments
        );
        assert_eq!(
            (from_settings.max_apps, from_settings.max_versions),
            (defaults.max_apps, defaults.max_versions)
        );
        assert_eq!(from_settings.max_instances, defaults.max_instances);
        assert_eq!(
            (
                from_settings.max_definitions_bytes,
                from_settings.max_versions_bytes
            ),
            (defaults.max_definitions_bytes, defaults.max_versions_bytes)
        );
        assert_eq!(from_settings.events, defaults.events);
        assert_eq!(from_settings.service_ports, defaults.service_ports);
        assert_eq!(from_settings.launch_timeout, defaults.launch_timeout);
        assert_eq!(
            (from_settings.user, from_settings.failover_timeout),
            (defaults.user, defaults.failover_timeout)
        );
    }

    fn section(text: &str) -> config::Apps {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn features_are_passed_to_the_service_and_gpus_to_the_master() {
        let section_of = |features: &str| section(&format!("enable_features = {features}"));
        for (features, names, gpus) in [
            ("[]", vec![], false),
            (r#"["task_killing", "secrets"]"#, vec!["secrets"], false),
            (
                r#"["gpu_resources", "external_volumes"]"#,
                vec!["external_volumes", "gpu_resources"],
                true,
            ),
        ] {
            let section = section_of(features);
            let config = service_config(&section, &config::Store::default());
            let actual: Vec<&str> = config.features.iter().map(|feature| feature.name()).collect();
            assert_eq!(actual, names);
            let info = framework_info(&section, None);
            assert_eq!(info.can(&CapabilityType::GpuResources), gpus, "{features}");
        }
    }

    #[test]
    fn empty_name_means_no_default_network() {
        assert_eq!(
            service_config(&section(""), &config::Store::default()).default_network_name,
            None
        );
        let named = service_config(
            &section("default_network_name = \"dcos\""),
            &config::Store::default(),
        );
        assert_eq!(named.default_network_name.as_deref(), Some("dcos"));
    }
}
