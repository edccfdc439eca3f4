//! Starts the service.

use std::sync::Arc;

use http::HeaderName;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transom_cluster::Client;
use transom_framework::{Leader, ServiceHandle};
use transom_plugin_host::Plugins;
use transom_store::Leadership;
use transom_web::{BoundPort, RequestMetrics};

use crate::api::{self, Api, Shared};
use crate::bootstrap::{PluginBootstrap, Scripts};
use crate::core::term::TermDependencies;
use crate::dependencies::{ClusterAdapter, KubeConnector};
use crate::kvstore::EtcdGateway;
use crate::metrics::Metrics;
use crate::runner::Runner;
use crate::view::Views;
use crate::{Config, Error, Result};

/// Names the daemon that forwarded a request.
const VIA: HeaderName = HeaderName::from_static("x-transom-kubernetes-via");

/// Serves the port until `token` is cancelled. The caller has to run the framework with the
/// [`Runner`]. `election` is the leadership.
///
/// # Errors
/// [`Error::Web`] if the configured host name is invalid, [`Error::Client`] if no HTTP client can
/// be made.
pub fn start(
    config: Config,
    port: BoundPort,
    plugins: Plugins,
    cluster: Client,
    election: watch::Receiver<Leadership>,
    registry: &mut Registry,
    token: CancellationToken,
) -> Result<(ServiceHandle, Runner)> {
    let config = Arc::new(config);
    if config.port.credentials.is_none() {
        tracing::warn!(
            framework = config.name,
            "AUTH_USERNAME and AUTH_PASSWORD are not set: every request from a trusted network is accepted"
        );
    }
    let labels = [("framework".into(), config.name.clone().into())];
    let registry = registry.sub_registry_with_labels(labels.into_iter());
    let forwarder = port.forwarder(VIA).map_err(Error::Web)?;
    let leader = Leader::new(port.advertised(), election);
    let (views, scripts) = (Arc::new(Views::default()), Arc::new(Scripts::default()));
    let runner = Runner {
        dependencies: TermDependencies {
            views: Arc::clone(&views),
            metrics: Metrics::register(registry),
            bootstrap: Arc::new(PluginBootstrap::new(plugins, Arc::clone(&config))?),
            scripts: Arc::clone(&scripts),
            script_base: script_base(&config, &port),
            cluster: Arc::new(ClusterAdapter::new(cluster)),
            connector: Arc::new(KubeConnector),
            kvstore: Arc::new(EtcdGateway::new()?),
            config: Arc::clone(&config),
        },
        leader: leader.clone(),
    };
    let api = Api(Arc::new(Shared {
        max_scale: config.max_scale,
        credentials: config.port.credentials.clone(),
        views,
        scripts,
        leader: leader.clone(),
    }));
    let router = api::router(
        &api,
        forwarder,
        RequestMetrics::register(registry, "transom_kubernetes"),
    );
    let name = config.name.clone();
    let service = transom_framework::serve(port, router, api::access_rules(), leader, name, token);
    Ok((service, runner))
}

/// Where the cluster's agents reach the service's port to fetch scripts.
fn script_base(config: &Config, port: &BoundPort) -> String {
    let number = port.addr().port();
    let address = match config.bootstrap.advertise.as_deref() {
        Some(host) if host.contains(':') => host.to_owned(),
        Some(host) => format!("{host}:{number}"),
        None => port.advertised(),
    };
    format!("{}://{address}", port.scheme())
}
