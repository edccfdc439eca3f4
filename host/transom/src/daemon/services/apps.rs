//! The apps service.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use transom_cli::{
    exit::{Misconfigured, Unavailable},
    overview::{Deployment, Failing, ServiceState, Unhealthy},
};
use transom_cluster::v1;
use transom_config::Settings;
use transom_scheduler::MaintenanceMode;
use transom_web::{BoundPort, Folder};

use super::{
    BoundService, DevHints, FrameworkService, PortName, Service, ServiceKind, StartContext, waiting_documents,
};
use crate::daemon::Addresses;
use crate::daemon::reserved::ReservedPort;
use crate::service::Explained;

/// `[apps]`
pub(crate) struct Apps;

#[async_trait]
impl ServiceKind for Apps {
    fn name(&self) -> &'static str {
        "apps"
    }

    fn is_enabled(&self, settings: &Settings) -> bool {
        settings.apps.is_some()
    }

    fn lists(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("v2/deployments", "running deployments"),
            ("v2/queue", "instances that are not launched, and why"),
            ("v2/tasks", "tasks"),
        ]
    }

    fn explained(&self) -> Option<Explained> {
        Some(Explained {
            service: self.name(),
            parameter: "app",
            example: "/shop/web",
            tasks: "apps and pods",
            has_decisions: true,
        })
    }

    fn ports(&self) -> &'static [PortName] {
        &[("apps", "apps.port")]
    }

    async fn bind(&self, settings: &Settings, _file: &Path) -> anyhow::Result<Vec<Box<dyn BoundService>>> {
        let Some(section) = &settings.apps else {
            return Ok(Vec::new());
        };
        let mut config = transom_apps::Config::new(section.clone())
            .map_err(|text| anyhow::anyhow!("`apps.callbacks.allow` contains {text:?}"))
            .context(Misconfigured)?;
        config.shared_store = !settings.store.server.starts_with("file:");
        config.ui = user_interface(section).await.context(Misconfigured)?;
        Ok(vec![Box::new(BoundApps {
            info: section.framework(settings.cluster.principal.clone()),
            daemon_prefix: section.http_port().daemon_prefix(&section.framework_name),
            maintenance: section.maintenance_mode(),
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
            transom_apps::Settings::REVIVE_INTERVAL,
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
            explainer: Arc::new(explainer),
            extension_points: &["matcher", "filter", "http checks", "tcp checks", "exec checks"],
        })])
    }
}

/// The service's part of `/v1/overview`.
fn state(summaries: &transom_apps::SummaryReader) -> ServiceState {
    let transom_apps::Summary {
        numbers,
        waiting,
        failing,
        unhealthy,
        deployments,
    } = summaries.read();
    let failing = failing.into_iter().map(|one| Failing {
        name: one.name,
        kind: one.kind.to_owned(),
        count: one.count,
        since: one.since,
        agents: one.agents,
        message: one.message,
        advice: one.advice,
    });
    let unhealthy = unhealthy
        .into_iter()
        .map(|(name, instances)| Unhealthy { name, instances });
    let deployments = deployments.into_iter().map(|one| Deployment {
        id: one.id,
        subject: one.subject,
        since: one.since,
        step: one.step,
        steps: one.steps,
        blocked: one.blocked,
    });
    ServiceState {
        summary: serde_json::json!(numbers),
        waiting: waiting_documents(waiting),
        failing: failing.collect(),
        unhealthy: unhealthy.collect(),
        deployments: deployments.collect(),
    }
}

/// The folder of the user interface, if one is configured.
async fn user_interface(section: &transom_config::Apps) -> anyhow::Result<Option<Folder>> {
    let Some(path) = &section.ui_dir else {
        return Ok(None);
    };
    let folder = Folder::open(path).await;
    folder.map(Some).context("apps.ui_dir")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[tokio::test]
    async fn ui_dir_without_an_index_is_a_configuration_error() {
        let dir = tempfile::tempdir().unwrap();
        let of = async |path: &Path| {
            let section = transom_config::Apps {
                ui_dir: Some(path.to_owned()),
                ..transom_config::Apps::default()
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
        assert_eq!(
            user_interface(&transom_config::Apps::default()).await.unwrap(),
            None
        );
    }
}
