//! The configuration of apps and its framework, from `[apps]`.

use std::collections::BTreeSet;
use std::time::Duration;

use transom_cluster::v1::{self, CapabilityType};
use transom_scheduler::MaintenanceMode;

use crate::{
    Apps, CheckRunner, Feature, GpuScheduling, Maintenance, OnDeadline, PlanFormat, Settings, Store,
};

/// The framework that the service registers.
pub fn framework(section: &Apps, principal: Option<String>) -> v1::FrameworkInfo {
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
pub fn service_and_framework(settings: &Settings) -> Option<(transom_apps::Config, v1::FrameworkInfo)> {
    let section = settings.apps.as_ref()?;
    Some((
        service(section, &settings.store),
        framework(section, settings.cluster.principal.clone()),
    ))
}

/// What the service does with agents in maintenance.
pub fn maintenance(section: &Apps) -> MaintenanceMode {
    match section.maintenance {
        Maintenance::Ignore => MaintenanceMode::Ignored,
        Maintenance::Avoid => MaintenanceMode::Avoided,
        Maintenance::Evacuate => MaintenanceMode::Evacuated {
            ahead: Duration::from_secs(section.draining_seconds),
        },
    }
}

/// The features that the service can switch; `task_killing` is always on.
fn features(section: &Apps) -> BTreeSet<transom_apps::Feature> {
    let feature = |feature: &Feature| match feature {
        Feature::ExternalVolumes => Some(transom_apps::Feature::ExternalVolumes),
        Feature::GpuResources => Some(transom_apps::Feature::GpuResources),
        Feature::Secrets => Some(transom_apps::Feature::Secrets),
        Feature::TaskKilling => None,
    };
    section.enable_features.iter().filter_map(feature).collect()
}

/// The configuration of the service.
pub fn service(section: &Apps, store: &Store) -> transom_apps::Config {
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
            let section: Apps = toml::from_str(text).unwrap();
            assert_eq!(maintenance(&section), expected, "{text}");
        }
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
        let config = service(&apps, &settings.store);
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
        let redis = Store::default();
        assert!(service(&apps, &redis).shared_store);
        // Both crates have the same defaults.
        let (from_settings, defaults) = (service(&Apps::default(), &redis), transom_apps::Config::default());
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

    fn section(text: &str) -> Apps {
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
            let config = service(&section, &Store::default());
            let actual: Vec<&str> = config.features.iter().map(|feature| feature.name()).collect();
            assert_eq!(actual, names);
            let info = framework(&section, None);
            assert_eq!(info.can(&CapabilityType::GpuResources), gpus, "{features}");
        }
    }

    #[test]
    fn empty_name_means_no_default_network() {
        assert_eq!(
            service(&section(""), &Store::default()).default_network_name,
            None
        );
        let named = service(&section("default_network_name = \"dcos\""), &Store::default());
        assert_eq!(named.default_network_name.as_deref(), Some("dcos"));
    }
}
