//! The service without a port and without components, for simulations (feature `simulation`).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, watch};
use transom_cluster::Client;
use transom_framework::Leader;
use transom_plugin_host::events::{Decision, Event, OpenError, Query};
use transom_plugin_host::matcher::{Constraint, ConstraintError};
use transom_plugin_host::probe::{Failure, Kind, Outcome, Reason, Request, Runner as CommandRunner};
use transom_plugin_host::simulation::ScriptedPlugins;
use transom_plugin_host::{CallError, Change};
use transom_registry::network::Reserved;
use transom_store::{Leadership, Store};
use transom_web::{DaemonTransport, Forwarder};

use crate::core::term::{Metrics, counted_snapshot};
use crate::policies::{Component, Policies, View};
use crate::start::{VIA, assemble};
use crate::{Config, Dependencies, Error, Result, Runner, api};

/// Answers a check of the task with this id: whether it succeeds.
pub type Check = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The name of the plugin in errors.
const EVENTS: &str = "event-filter";

/// The parts of the world that the service sees.
pub struct World {
    /// Host and port at which other daemons reach this one.
    pub address: String,
    /// The shared store.
    pub store: Arc<dyn Store>,
    /// The cluster manager.
    pub cluster: Client,
    /// The way to the other daemons.
    pub transport: Arc<dyn DaemonTransport>,
    /// The current leadership.
    pub election: watch::Receiver<Leadership>,
    /// The results of checks.
    pub check: Check,
    /// The plugins.
    pub plugins: ScriptedPlugins,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// The port's routes, behind its checks, and the runner.
///
/// # Errors
/// As those of [`start`](crate::start()).
pub async fn start(config: Config, world: World) -> Result<(Router, Runner)> {
    let mut registry = Registry::default();
    let dependencies = Dependencies {
        placement: None,
        policies: Arc::new(Scripted {
            check: world.check,
            plugins: world.plugins,
        }),
        agents: Some(world.cluster.agents()),
        reserved: Reserved::default(),
        metrics: Metrics::register(&mut registry),
        snapshot: counted_snapshot(&mut registry),
    };
    let forwarder = Forwarder::new(VIA, &world.address).map_err(Error::Web)?;
    let leader = Leader::new(world.address, world.election);
    let (port, addr) = (config.port.clone(), ([10, 0, 2, 1], config.port.port).into());
    let forwarder = forwarder.over(world.transport);
    let (router, runner) = assemble(
        config,
        forwarder,
        (addr, "http"),
        world.store,
        dependencies,
        &leader,
    )
    .await?;
    Ok((port.protect(router, api::RULES), runner))
}

/// Plugins that accept all constraints and send all events.
struct Scripted {
    check: Check,
    plugins: ScriptedPlugins,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct AllEvents(ScriptedPlugins);

#[async_trait]
impl View for AllEvents {
    async fn decide(&self, events: &[Event]) -> std::result::Result<Vec<Decision>, OpenError> {
        self.0.call(EVENTS).await.map_err(OpenError::Call)?;
        Ok(vec![Decision::Pass; events.len()])
    }
}

#[async_trait]
impl Policies for Scripted {
    async fn validate_constraints(
        &self,
        _: &[Constraint],
    ) -> std::result::Result<Vec<ConstraintError>, CallError> {
        self.plugins.call("attribute-matcher").await?;
        Ok(Vec::new())
    }

    async fn open_view(&self, _: Query) -> std::result::Result<Arc<dyn View>, OpenError> {
        self.plugins.call(EVENTS).await.map_err(OpenError::Call)?;
        Ok(Arc::new(AllEvents(self.plugins.clone())))
    }

    async fn probe(
        &self,
        kind: Kind,
        request: Request,
        _: Option<Arc<dyn CommandRunner>>,
    ) -> std::result::Result<Outcome, Failure> {
        let called = self.plugins.call(&self.prober(&kind)).await;
        called.map_err(|error| Failure {
            reason: Reason::Plugin,
            message: error.to_string(),
        })?;
        let succeeds = (self.check)(&request.task);
        Ok(match kind {
            Kind::Http => Outcome::Http(if succeeds { 200 } else { 500 }),
            Kind::Tcp => Outcome::Tcp(succeeds),
            _ => Outcome::Command(i32::from(!succeeds)),
        })
    }

    fn prober(&self, _: &Kind) -> String {
        "scripted".to_owned()
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.plugins.changes()
    }

    fn components(&self) -> Vec<Component> {
        Vec::new()
    }
}
