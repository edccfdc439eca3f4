//! Starts the service.

use std::sync::Arc;

use axum::Router;
use http::HeaderName;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transom_cluster::Client;
use transom_framework::{Leader, ServiceHandle};
use transom_plugin_host::Plugins;
use transom_store::Leadership;
use transom_web::{BoundPort, Forwarder, RequestMetrics};

use crate::api::{self, Api, Shared};
use crate::core::term::{Handles, TermDependencies};
use crate::dependencies::{AgentDirectory, ClusterAdapter, Matcher};
use crate::job_index::JobIndex;
use crate::metrics::Metrics;
use crate::runner::Runner;
use crate::{Error, Result, Settings};

/// The header with the daemons that forwarded a request.
pub(crate) const VIA: HeaderName = HeaderName::from_static("x-transom-workflow-via");

/// Serves the port until `token` is cancelled. The caller has to run the framework with the
/// [`Runner`]. `election`: the current leadership.
///
/// # Errors
/// [`Error::Web`] if the configured hostname is invalid.
pub fn start(
    config: Settings,
    port: BoundPort,
    plugins: Plugins,
    cluster: Client,
    election: watch::Receiver<Leadership>,
    registry: &mut Registry,
    token: CancellationToken,
) -> Result<(ServiceHandle, Runner)> {
    if port.config().credentials.is_none() {
        tracing::info!(
            "workflow: api_username and api_password are not set: /v0/dags rejects every request, and only \
                 trusted networks may queue jobs"
        );
    }
    let forwarder = port.forwarder(VIA).map_err(Error::Web)?;
    let leader = Leader::new(port.advertised(), election);
    let (matcher, cluster) = (Arc::new(plugins), Arc::new(ClusterAdapter::new(cluster)));
    let (name, stopping) = (config.framework_name.clone(), token.clone());
    let (router, runner) = assemble(config, forwarder, matcher, cluster, &leader, registry, stopping);
    let service = transom_framework::serve(port, router, api::access_rules(), leader, name, token);
    Ok((service, runner))
}

/// The routes and the runner.
pub(crate) fn assemble(
    config: Settings,
    forwarder: Forwarder,
    matcher: Arc<dyn Matcher>,
    cluster: Arc<dyn AgentDirectory>,
    leader: &Leader<Handles>,
    registry: &mut Registry,
    stopping: CancellationToken,
) -> (Router, Runner) {
    let index = Arc::new(JobIndex::new());
    let shared = Shared {
        config: config.clone(),
        index: Arc::clone(&index),
        matcher: Arc::clone(&matcher),
        cluster: Arc::clone(&cluster),
        leader: leader.clone(),
        stopping,
    };
    let runner = Runner {
        dependencies: TermDependencies {
            config,
            store_timeout: transom_store::typed::TIMEOUT,
            index,
            metrics: Metrics::register(registry),
            matcher,
            cluster,
        },
        leader: leader.clone(),
    };
    let metrics = RequestMetrics::register(registry, "transom_workflow");
    (api::router(&Api(Arc::new(shared)), forwarder, metrics), runner)
}
