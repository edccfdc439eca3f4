//! The services of the daemon: each has a file here and an entry in [`SERVICES`].
//!
//! The ports of all services are bound first, so that a port in use is reported before anything runs. A
//! service is started when store, plugins and the client of the cluster manager are available. After
//! that, the daemon, the admin port and the command line only use the trait [`Service`].

mod apps;
mod context;
mod discovery;
mod kubernetes;
mod workflow;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use transom_cli::overview::{ServiceState, Waiting};
use transom_config::Settings;
use transom_framework::{Explain, Routes, ServiceHandle};

use super::Addresses;
use super::reserved::ReservedPort;
use crate::service::{Explained, Readiness, Service};

pub(crate) use apps::Apps;
pub(crate) use context::{StartContext, StoreContext};
pub(crate) use discovery::Discovery;
pub(crate) use kubernetes::Kubernetes;
pub(crate) use workflow::Workflow;

/// All kinds of services, in the order in which they are started.
pub(crate) const SERVICES: &[&dyn ServiceKind] = &[&Apps, &Discovery, &Kubernetes, &Workflow];

/// A port of a service: its name in `--port NAME=N`, and the setting that it overrides.
pub(crate) type PortName = (&'static str, &'static str);

/// A service that the settings may enable.
#[async_trait]
pub(crate) trait ServiceKind: Sync {
    /// The name of the service, which is that of its section.
    fn name(&self) -> &'static str;

    /// Whether the settings enable the service.
    fn is_enabled(&self, settings: &Settings) -> bool;

    /// Documents of the service's API for `transom bundle`: their paths and descriptions.
    fn lists(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// How the service's tasks are named in explanations; `None` for a service without a framework.
    fn explained(&self) -> Option<Explained> {
        None
    }

    /// The ports of the service.
    fn ports(&self) -> &'static [PortName];

    /// Binds the ports. Returns nothing if the settings do not enable the service. `file`: the file
    /// with the settings.
    async fn bind(&self, settings: &Settings, file: &Path) -> anyhow::Result<Vec<Box<dyn BoundService>>>;

    /// The section of the service in the configuration that `transom dev` writes.
    fn dev_section(&self) -> &'static str;

    /// The lines that `transom dev` prints for the service when it is ready.
    fn dev_hints(&self, addresses: &Addresses) -> DevHints;
}

/// Lines that `transom dev` prints: addresses with their names, and commands to try.
#[derive(Debug, Default)]
pub(crate) struct DevHints {
    pub(crate) addresses: Vec<(&'static str, String)>,
    pub(crate) commands: Vec<String>,
}

/// A service whose port is bound.
#[async_trait]
pub(crate) trait BoundService: Send {
    /// The ports of the service, which are reserved addresses. Empty if they are only bound when the
    /// service starts.
    fn ports(&self) -> Vec<ReservedPort>;

    /// The prefix of this daemon's own keys in the store, if the service needs a store:
    /// `<framework>/daemons/<host>:<port>`.
    fn daemon_prefix(&self) -> Option<String>;

    /// Starts the service, or the services that share its port.
    async fn start(self: Box<Self>, context: &mut StartContext<'_>) -> anyhow::Result<Vec<Box<dyn Service>>>;
}

/// Pending tasks as the overview shows them.
fn waiting_documents(waiting: Vec<transom_scheduler::Waiting>) -> Vec<Waiting> {
    let waiting = waiting.into_iter().map(|one| Waiting {
        name: one.run_spec,
        instances: one.tasks,
        since: Some(one.since),
        reasons: one
            .reasons
            .into_iter()
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect(),
        offers: one.offers,
        message: one.message,
        why: one.why,
        advice: one.advice.into_iter().map(str::to_owned).collect(),
    });
    waiting.collect()
}

/// A running service with a framework.
struct FrameworkService {
    service: ServiceHandle,
    /// Reads the service's part of `/v1/overview`.
    summary: Box<dyn Fn() -> ServiceState + Send + Sync>,
    explainer: Arc<dyn Explain>,
    /// See [`Service::extension_points`].
    extension_points: &'static [&'static str],
}

#[async_trait]
impl Service for FrameworkService {
    fn name(&self) -> &'static str {
        self.service.name()
    }

    fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        vec![(self.service.name(), self.service.addr())]
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            ready: self.service.is_ready(),
            framework: Some(self.service.framework().into()),
            source: None,
            problem: None,
        }
    }

    fn summary(&self) -> ServiceState {
        (self.summary)()
    }

    fn explainer(&self) -> Option<Arc<dyn Explain>> {
        Some(Arc::clone(&self.explainer))
    }

    fn extension_points(&self) -> &'static [&'static str] {
        self.extension_points
    }

    fn routes(&self) -> Option<Routes> {
        Some(self.service.routes().clone())
    }

    async fn stopped(&self) {
        self.service.stopped().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_one_name_each() {
        let ports = SERVICES.iter().flat_map(|kind| kind.ports());
        let names: Vec<&str> = ports.map(|(name, _)| *name).collect();
        assert_eq!(names, ["apps", "dns", "discovery", "kubernetes", "workflow"]);
    }
}
