//! The service without a port and without components, for simulations (feature `simulation`).

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transom_cluster::Client;
use transom_framework::Leader;
use transom_plugin_host::CallError;
use transom_plugin_host::matcher::{Agent, Constraint, ConstraintError, Task, Verdict};
use transom_plugin_host::simulation::ScriptedPlugins;
use transom_store::Leadership;
use transom_web::{DaemonTransport, Forwarder};

use crate::dependencies::{ClusterAdapter, Matcher};
use crate::start::{VIA, assemble};
use crate::{Error, Result, Runner, Settings, api};
use transom_framework::feasibility::{MatchSession, MatchSessions};

/// The name of the plugin in errors.
const NAME: &str = "attribute-matcher";

/// The port's routes, behind its checks, and the runner. `address`: host and port at which other
/// daemons reach this one, with `transport`.
///
/// # Errors
/// [`Error::Web`] if the address is invalid.
pub fn start(
    settings: Settings,
    address: &str,
    cluster: Client,
    transport: Arc<dyn DaemonTransport>,
    election: watch::Receiver<Leadership>,
    plugins: ScriptedPlugins,
) -> Result<(Router, Runner)> {
    let forwarder = Forwarder::new(VIA, address).map_err(Error::Web)?;
    let leader = Leader::new(address, election);
    let port = settings.http_port().config();
    let (router, runner) = assemble(
        settings,
        forwarder.over(transport),
        Arc::new(Scripted(plugins)),
        Arc::new(ClusterAdapter::new(cluster)),
        &leader,
        &mut Registry::default(),
        CancellationToken::new(),
    );
    Ok((port.protect(router, api::access_rules()), runner))
}

/// A matcher that accepts every constraint and every agent.
#[derive(Debug)]
struct Scripted(ScriptedPlugins);

#[async_trait]
impl Matcher for Scripted {
    async fn check(&self, _: &[Constraint]) -> std::result::Result<Vec<ConstraintError>, CallError> {
        self.0.call(NAME).await?;
        Ok(Vec::new())
    }
}

impl MatchSessions for Scripted {
    fn match_session(&self, agents: Vec<Agent>) -> Box<dyn MatchSession> {
        Box::new(AllFit(agents.len(), self.0.clone()))
    }
}

/// A session with this number of agents.
struct AllFit(usize, ScriptedPlugins);

#[async_trait]
impl MatchSession for AllFit {
    async fn judge(&mut self, _: &Task) -> std::result::Result<Vec<Verdict>, CallError> {
        self.1.call(NAME).await?;
        Ok(vec![Verdict::Fits; self.0])
    }
}
