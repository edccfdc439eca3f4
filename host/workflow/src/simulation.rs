//! The service without a port and without a plugin host, for simulations (feature `simulation`).

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
use transom_store::Leadership;
use transom_web::{DaemonTransport, Forwarder};

use crate::dependencies::{ClusterAdapter, MatchSession, Matcher};
use crate::start::{VIA, assemble};
use crate::{Error, Result, Runner, Settings, api};

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
) -> Result<(Router, Runner)> {
    let forwarder = Forwarder::new(VIA, address).map_err(Error::Web)?;
    let leader = Leader::new(address, election);
    let port = settings.http_port().config();
    let (router, runner) = assemble(
        settings,
        forwarder.over(transport),
        Arc::new(Scripted),
        Arc::new(ClusterAdapter::new(cluster)),
        &leader,
        &mut Registry::default(),
        CancellationToken::new(),
    );
    Ok((port.protect(router, api::access_rules()), runner))
}

/// A matcher that accepts every constraint and every agent.
#[derive(Debug)]
struct Scripted;

#[async_trait]
impl Matcher for Scripted {
    async fn check(&self, _: &[Constraint]) -> std::result::Result<Vec<ConstraintError>, CallError> {
        Ok(Vec::new())
    }

    fn match_session(&self, agents: Vec<Agent>) -> Box<dyn MatchSession> {
        Box::new(AllFit(agents.len()))
    }
}

struct AllFit(usize);

#[async_trait]
impl MatchSession for AllFit {
    async fn judge(&mut self, _: &Task) -> std::result::Result<Vec<Verdict>, CallError> {
        Ok(vec![Verdict::Fits; self.0])
    }
}
