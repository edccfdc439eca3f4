//! The workflow service.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use transom_cli::{
    exit::{Misconfigured, Unavailable},
    overview::{Failing, ServiceState},
};
use transom_cluster::v1;
use transom_config::{Settings, parts};
use transom_scheduler::MaintenanceMode;
use transom_web::BoundPort;

use super::{
    BoundService, DevHints, FrameworkService, PortName, Service, ServiceKind, StartContext, waiting_documents,
};
use crate::daemon::Addresses;
use crate::daemon::reserved::ReservedPort;
use crate::service::Explained;

/// `[workflow]`
pub(crate) struct Workflow;

#[async_trait]
impl ServiceKind for Workflow {
    fn name(&self) -> &'static str {
        "workflow"
    }

    fn is_enabled(&self, settings: &Settings) -> bool {
        settings.workflow.is_some()
    }

    fn lists(&self) -> &'static [(&'static str, &'static str)] {
        &[("v0/queue", "jobs that are not launched, and why")]
    }

    fn explained(&self) -> Option<Explained> {
        Some(Explained {
            service: self.name(),
            parameter: "job",
            example: "nightly-report",
            tasks: "jobs",
            has_decisions: false,
        })
    }

    fn ports(&self) -> &'static [PortName] {
        &[("workflow", "workflow.port")]
    }

    async fn bind(&self, settings: &Settings, _file: &Path) -> anyhow::Result<Vec<Box<dyn BoundService>>> {
        let Some(section) = &settings.workflow else {
            return Ok(Vec::new());
        };
        Ok(vec![Box::new(BoundWorkflow {
            info: section.framework(settings.cluster.principal.clone()),
            daemon_prefix: section.http_port().daemon_prefix(&section.framework_name),
            cluster: parts::workflow::own_cluster(section, &settings.cluster).context(Misconfigured)?,
            port: section.bind().await.context(Unavailable)?,
            settings: section.clone(),
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
    settings: transom_workflow::Settings,
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
            transom_workflow::Settings::REVIVE_INTERVAL,
            // A running job is not moved before maintenance, because it ends on its own.
            MaintenanceMode::Avoided,
        )?;
        let started = transom_workflow::start(
            self.settings,
            port,
            context.plugins.clone(),
            cluster,
            framework.election.leadership(),
            context.registry,
            context.token.child_token(),
        );
        let (service, runner) = started.context(Unavailable)?;
        let (summaries, explainer) = (runner.summaries(), Arc::new(runner.explainer()));
        context.run(&service, framework, runner);
        Ok(vec![Box::new(FrameworkService {
            service,
            summary: Box::new(move || state(&summaries)),
            explainer,
            extension_points: &["matcher"],
        })])
    }
}

/// The service's part of `/v1/overview`.
fn state(summaries: &transom_workflow::SummaryReader) -> ServiceState {
    let transom_workflow::Summary {
        numbers,
        waiting,
        unplaceable,
    } = summaries.read();
    let failing = unplaceable.into_iter().map(|one| Failing {
        name: one.name,
        kind: one.kind.to_owned(),
        count: u32::try_from(one.tasks).unwrap_or(u32::MAX),
        since: one.since,
        agents: Vec::new(),
        message: one.message,
        advice: one.advice.to_owned(),
    });
    ServiceState {
        summary: serde_json::json!(numbers),
        waiting: waiting_documents(waiting),
        failing: failing.collect(),
        ..ServiceState::default()
    }
}
