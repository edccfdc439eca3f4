//! The apps service.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use transom_cluster::v1;
use transom_web::BoundPort;

use super::{BoundService, DevHints, PortName, Service, ServiceKind, StartContext};
use crate::config::{self, CheckRunner, PlanFormat, Settings};
use crate::daemon::Addresses;
use crate::daemon::reserved::ReservedPort;
use crate::exit::Unavailable;

/// `[apps]`
pub(crate) struct Apps;

#[async_trait]
impl ServiceKind for Apps {
    fn ports(&self) -> &'static [PortName] {
        &[("apps", "apps.port")]
    }

    async fn bind(&self, settings: &Settings, _file: &Path) -> anyhow::Result<Option<Box<dyn BoundService>>> {
        let Some(section) = &settings.apps else {
            return Ok(None);
        };
        let config = service_config(section);
        Ok(Some(Box::new(BoundApps {
            info: framework_info(section, settings.cluster.principal.clone()),
            daemon_prefix: section.http_port().daemon_prefix(&section.framework_name),
            port: config.bind().await.context(Unavailable)?,
            config,
        })))
    }

    fn dev_section(&self) -> &'static str {
        "[apps]\nlistener = \"127.0.0.1\"\nport = 8080\n"
    }

    fn dev_hints(&self, addresses: &Addresses) -> DevHints {
        let Some(apps) = addresses.of("apps") else {
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
    daemon_prefix: String,
}

#[async_trait]
impl BoundService for BoundApps {
    fn ports(&self) -> Vec<ReservedPort> {
        vec![ReservedPort::of(&self.port)]
    }

    fn daemon_prefix(&self) -> Option<String> {
        Some(self.daemon_prefix.clone())
    }

    async fn start(self: Box<Self>, context: &mut StartContext<'_>) -> anyhow::Result<Box<dyn Service>> {
        let address = self.port.advertised();
        let cluster = context.cluster.clone();
        let framework =
            context.framework(self.info, &address, cluster.clone(), self.config.revive_interval)?;
        let plugins = context.plugins.clone();
        let dependencies = transom_apps::Dependencies::new(plugins, &cluster, context.registry);
        let started = transom_apps::start(
            self.config,
            self.port,
            Arc::clone(&context.store()?.store),
            dependencies,
            framework.election.leadership(),
            context.token.child_token(),
        );
        let (service, runner) = started.await.context(Unavailable)?;
        context.run(&service, framework, runner);
        Ok(Box::new(service))
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
        ..v1::FrameworkInfo::default()
    }
}

fn service_config(section: &config::Apps) -> transom_apps::Config {
    transom_apps::Config {
        port: section.http_port().config(),
        prefix: section.framework_name.clone(),
        framework_name: section.framework_name.clone(),
        role: section.role.clone(),
        env_vars_prefix: section.env_vars_prefix.clone(),
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
        events: transom_apps::Events {
            plan_format: match section.events.plan_format {
                PlanFormat::Specification => transom_apps::PlanForm::Specification,
                PlanFormat::Upstream => transom_apps::PlanForm::Upstream,
            },
        },
        ..transom_apps::Config::default()
    }
}
