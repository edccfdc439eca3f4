//! Starts the service.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use http::HeaderName;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transom_cluster::Client;
use transom_framework::{Leader, Routes, ServiceHandle, ServicePort};
use transom_plugin_host::Plugins;
use transom_store::Leadership;
use transom_web::{AccessRules, BoundPort, Forwarder, RequestMetrics};

use crate::api::{self, Api, Shared};
use crate::backup::delivery::Delivery;
use crate::backup::directory::Directory;
use crate::bootstrap::{Bootstrap, PluginBootstrap, Scripts};
use crate::core::term::{Handles, TermDependencies};
use crate::dependencies::{Cluster, ClusterAdapter, Connector, KubeConnector};
use crate::kvstore::{EtcdGateway, Kvstore};
use crate::metrics::Metrics;
use crate::runner::Runner;
use crate::view::Views;
use crate::{Config, Error, Result};

/// The header that contains the daemon that forwarded a request.
pub(crate) const VIA: HeaderName = HeaderName::from_static("x-transom-kubernetes-via");

/// The resources that all instances in a daemon share.
#[derive(Debug)]
pub struct Resources<'a> {
    /// The plugin host, which runs the bootstrap component.
    pub plugins: &'a Plugins,
    /// The cluster manager.
    pub cluster: &'a Client,
    /// The registry for the metrics.
    pub registry: &'a mut Registry,
    /// Cancelled when the instances end.
    pub token: CancellationToken,
}

/// One of the instances on a port.
#[derive(Debug)]
pub struct Instance {
    /// The name of the service in the daemon.
    pub name: &'static str,
    /// Its settings.
    pub config: Config,
    /// The leadership of its framework.
    pub election: watch::Receiver<Leadership>,
}

/// Serves the port until the token is cancelled. The caller must run each framework with its
/// [`Runner`]. Either the port belongs to a single instance, whose path is empty, or
/// several instances share it, each below its path. All instances on a port end together. `scripts`: a
/// port that serves only the scripts of these instances.
///
/// # Errors
/// [`Error::Web`] if the configured host name is invalid, [`Error::Client`] if the HTTP client cannot
/// be created.
pub fn start(
    instances: Vec<Instance>,
    port: BoundPort,
    scripts: Option<BoundPort>,
    mut resources: Resources<'_>,
) -> Result<Vec<(ServiceHandle, Runner)>> {
    let (mut routers, mut started) = (BTreeMap::new(), Vec::new());
    let mut script_routers = Router::new();
    for instance in instances {
        let name = instance.name;
        let PreparedInstance {
            router,
            scripts: of_instance,
            leader,
            runner,
        } = PreparedInstance::new(instance, &port, scripts.as_ref(), &mut resources)?;
        script_routers = match &*runner.dependencies.config.settings.instance.path {
            "" => script_routers.merge(of_instance),
            path => script_routers.nest(path, of_instance),
        };
        routers.insert(runner.dependencies.config.settings.instance.path.clone(), router);
        started.push((name, leader, runner));
    }
    let (router, rules) = match routers.remove("") {
        Some(router) => (router, api::access_rules()),
        None => (api::instances::router(routers), api::instances::access_rules()),
    };
    let service_port = ServicePort::start(port, router, rules, resources.token);
    if let Some(scripts) = scripts {
        let router = transom_web::with_fallbacks(script_routers);
        service_port.serve_beside(scripts, router, AccessRules::DEFAULT);
    }
    let services = started.into_iter().map(|(name, leader, runner)| {
        let config = &runner.dependencies.config;
        let own = Routes {
            router: api::instances::below(
                service_port.routes().router.clone(),
                &config.settings.instance.path,
            ),
            rules: api::access_rules(),
            policy: service_port.routes().policy.clone(),
        };
        let framework = config.name().to_owned();
        (service_port.service(name, leader, framework, own), runner)
    });
    Ok(services.collect())
}

/// What an instance uses of the world.
pub(crate) struct Parts {
    pub(crate) forwarder: Forwarder,
    pub(crate) leader: Leader<Handles>,
    /// See [`TermDependencies`].
    pub(crate) script_base: String,
    pub(crate) backup_base: String,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) kvstore: Arc<dyn Kvstore>,
}

/// An instance that is not served yet.
pub(crate) struct PreparedInstance {
    pub(crate) router: Router,
    /// The routes of its scripts only.
    scripts: Router,
    leader: Leader<Handles>,
    pub(crate) runner: Runner,
}

impl PreparedInstance {
    fn new(
        instance: Instance,
        port: &BoundPort,
        script_port: Option<&BoundPort>,
        resources: &mut Resources<'_>,
    ) -> Result<Self> {
        let config = Arc::new(instance.config);
        if config.port.credentials.is_none() {
            tracing::warn!(
                framework = config.name(),
                "AUTH_USERNAME and AUTH_PASSWORD are not set: every request from a trusted network is accepted"
            );
        }
        if port.scheme() == "https" && script_port.is_none() {
            tracing::warn!(
                framework = config.name(),
                "the cluster's agents fetch the bootstrap scripts over TLS, so they must trust the certificate of the \
                 port; otherwise no server and no agent starts. `bootstrap.port` serves the scripts without TLS; see \
                 docs/framework.md, \"The first script\""
            );
        }
        let labels = [("framework".into(), config.name().to_owned().into())];
        let registry = resources.registry.sub_registry_with_labels(labels.into_iter());
        let advertised = config.settings.bootstrap.advertise.as_deref();
        let is_of_api = script_port.is_none();
        let parts = Parts {
            forwarder: port.forwarder(VIA).map_err(Error::Web)?,
            leader: Leader::new(port.advertised(), instance.election),
            script_base: base(&config, script_port.unwrap_or(port), advertised),
            backup_base: base(
                &config,
                port,
                advertised.filter(|host| is_of_api || !host.contains(':')),
            ),
            bootstrap: Arc::new(PluginBootstrap::new(
                resources.plugins.clone(),
                Arc::clone(&config),
            )?),
            cluster: Arc::new(ClusterAdapter::new(resources.cluster.clone())),
            connector: Arc::new(KubeConnector),
            kvstore: Arc::new(EtcdGateway::new()?),
        };
        Ok(Self::assemble(&config, parts, registry))
    }

    /// The instance with these parts.
    pub(crate) fn assemble(config: &Arc<Config>, parts: Parts, registry: &mut Registry) -> Self {
        let (views, scripts) = (Arc::new(Views::default()), Arc::new(Scripts::default()));
        let delivery = Arc::new(Delivery::default());
        let runner = Runner {
            dependencies: TermDependencies {
                views: Arc::clone(&views),
                metrics: Metrics::register(registry),
                bootstrap: parts.bootstrap,
                scripts: Arc::clone(&scripts),
                delivery: Arc::clone(&delivery),
                script_base: parts.script_base,
                backup_base: parts.backup_base,
                cluster: parts.cluster,
                connector: parts.connector,
                kvstore: parts.kvstore,
                config: Arc::clone(config),
            },
            leader: parts.leader.clone(),
        };
        let api = Api(Arc::new(Shared {
            max_scale: config.settings.max_scale,
            credentials: config.port.credentials.clone(),
            views,
            scripts,
            delivery,
            backups: config
                .settings
                .backup
                .dir
                .as_ref()
                .map(|dir| Directory::new(dir, config.name())),
            leader: parts.leader.clone(),
        }));
        let metrics = RequestMetrics::register(registry, "transom_kubernetes");
        Self {
            scripts: api::script_router(&api),
            router: api::router(&api, parts.forwarder, metrics),
            leader: parts.leader,
            runner,
        }
    }
}

/// The URL at which the cluster's agents reach a port.
fn base(config: &Config, port: &BoundPort, advertised: Option<&str>) -> String {
    let number = port.addr().port();
    let address = match advertised {
        Some(host) if host.contains(':') => host.to_owned(),
        Some(host) => format!("{host}:{number}"),
        None => port.advertised(),
    };
    format!("{}://{address}{}", port.scheme(), config.settings.instance.path)
}
