//! The Kubernetes service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use transom_cli::{
    exit::Unavailable,
    overview::{Failing, ServiceState, Waiting},
};
use transom_cluster::v1;
use transom_config::Settings;
use transom_kubernetes::{Instance, Resources, config as service};
use transom_scheduler::MaintenanceMode;
use transom_web::BoundPort;

use super::{BoundService, DevHints, FrameworkService, PortName, Service, ServiceKind, StartContext};
use crate::daemon::Addresses;
use crate::daemon::reserved::ReservedPort;
use crate::service::Explained;

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
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn is_enabled(&self, settings: &Settings) -> bool {
        !settings.kubernetes().is_empty()
    }

    fn explained(&self) -> Option<Explained> {
        Some(Explained {
            service: self.name(),
            parameter: "member",
            example: "server/0",
            tasks: "members of Kubernetes clusters",
            has_decisions: false,
        })
    }

    fn ports(&self) -> &'static [PortName] {
        &[("kubernetes", "kubernetes.port")]
    }

    async fn bind(&self, settings: &Settings, _file: &Path) -> anyhow::Result<Vec<Box<dyn BoundService>>> {
        let mut bound: Vec<Box<dyn BoundService>> = Vec::new();
        if settings.kubernetes().is_empty() {
            return Ok(bound);
        }
        for ignored in transom_config::ignored_kubernetes_variables() {
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
        section: &transom_config::Kubernetes,
        instances: &[&transom_config::Kubernetes],
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let port = section.http_port();
        let first = instances.first().map(|instance| instance.framework_name.as_str());
        let configs: Vec<_> = instances
            .iter()
            .map(|instance| service::Config::new((*instance).clone()))
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
        let instances = configs.into_iter().map(|config| BoundInstance {
            name: config.settings.instance.section,
            info: config.settings.framework(settings.cluster.principal.clone()),
            config,
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
                webui_url: Some(format!("{scheme}://{address}{}", config.settings.instance.path)),
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
            let (summaries, explainer) = (runner.summaries(), Arc::new(runner.explainer()));
            context.run(&service, framework, runner);
            services.push(Box::new(FrameworkService {
                service,
                summary: Box::new(move || state(&summaries)),
                explainer,
                extension_points: &["matcher", "bootstrap"],
            }));
        }
        Ok(services)
    }
}

/// The service's part of `/v1/overview`.
fn state(summaries: &transom_kubernetes::SummaryReader) -> ServiceState {
    let transom_kubernetes::Summary {
        numbers,
        waiting,
        failing,
    } = summaries.read();
    let failing = failing.into_iter().map(|one| Failing {
        name: one.name.to_owned(),
        kind: "failed".to_owned(),
        count: one.count,
        since: one.since,
        agents: one.hosts,
        message: one.message,
        advice: "Read the task's stdout and stderr on the agent; `transom fw status` shows the others."
            .to_owned(),
    });
    let waiting = waiting.into_iter().map(|(kind, reason)| Waiting {
        name: kind.to_owned(),
        why: reason.clone(),
        message: Some(reason),
        ..Waiting::default()
    });
    ServiceState {
        summary: serde_json::json!(numbers),
        waiting: waiting.collect(),
        failing: failing.collect(),
        ..ServiceState::default()
    }
}
