//! The daemon: starts its services from the settings, watches them, and stops them.
//!
//! The parts are started in the order of their dependencies: store, plugins, connection to the cluster
//! manager, services, admin port. Sockets are bound first, so that a port in use is reported before
//! anything runs. [`services`] lists the services. Of the daemons that share a store, one is the leader
//! of a framework and runs its scheduler (`transom_framework`); the others are standbys, which forward
//! or redirect requests that need the leader. A service that ends unexpectedly ends the daemon with an
//! error; after a restart by its supervisor the daemon takes over its frameworks and tasks again.

mod discovery_only;
mod metrics;
mod open_files;
mod reserved;
pub(crate) mod services;

pub(crate) use discovery_only::serve_discovery;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_cli::exit::{Misconfigured, Unavailable};
use transom_cluster::Client;
use transom_config::{Settings, parts};
use transom_plugin_host::{Plugins, Reserved};

use crate::admin::{self, Admin, HostedPlugins, ObservedStore};
use crate::service::{Service, Services};
use reserved::ReservedPort;
use services::{SERVICES, StartContext, StoreContext};

/// The timeout for all services to stop after a shutdown request.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// A running daemon.
pub(crate) struct Daemon {
    services: Services,
    plugins: Plugins,
    clusters: Vec<Client>,
    admin: JoinHandle<transom_web::Result<()>>,
    addresses: Addresses,
}

/// The addresses of the daemon's ports, by the names of the ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(Vec<(&'static str, SocketAddr)>);

impl Addresses {
    /// The address of the port with this name, if it is open.
    pub(crate) fn get(&self, name: &str) -> Option<SocketAddr> {
        let port = self.0.iter().find(|(candidate, _)| *candidate == name);
        port.map(|(_, address)| *address)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, address)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={address}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// The parts that have started so far; they are stopped if a later part cannot start.
#[derive(Default)]
struct StartedParts {
    services: Vec<Box<dyn Service>>,
    plugins: Option<Plugins>,
    clusters: Vec<Client>,
}

impl StartedParts {
    /// Waits until everything has stopped. The token must be cancelled before.
    async fn stopped(&self) {
        join_all(self.services.iter().map(|service| service.stopped())).await;
        if let Some(plugins) = &self.plugins {
            plugins.stopped().await;
        }
        join_all(self.clusters.iter().map(Client::close)).await;
    }
}

impl Daemon {
    /// Starts every service that `settings` enable. `file`: the file with the settings.
    ///
    /// # Errors
    /// A port in use, a store that another process has opened, or a missing plugin directory. Services
    /// that were started already have stopped when this returns. An unreachable master is not an error:
    /// the services log it and retry.
    pub(crate) async fn start(
        settings: Settings,
        file: &Path,
        token: CancellationToken,
    ) -> anyhow::Result<Daemon> {
        let mut started = StartedParts::default();
        let uploads = settings.plugins.uploads;
        // Stops what was started if this future is dropped.
        let guard = token.clone().drop_guard();
        match Box::pin(start_all(settings, file, &token, &mut started)).await {
            Ok((plugins, admin_port, mut registry, store)) => {
                guard.disarm();
                let services: Services = started.services.into();
                let mut addresses: Vec<_> = services.iter().flat_map(|it| it.addresses()).collect();
                addresses.push(("admin", admin_port.addr()));
                metrics::register(&mut registry, &services);
                let cluster = started.clusters[0].clone();
                let hosted = HostedPlugins {
                    plugins: plugins.clone(),
                    uploads,
                    explained: SERVICES.iter().filter_map(|kind| kind.explained()).collect(),
                };
                let admin = Admin::new(registry, Some(hosted), Arc::clone(&services), cluster, store);
                Ok(Daemon {
                    services,
                    plugins,
                    clusters: started.clusters,
                    admin: admin::serve(admin_port, admin, token.child_token()),
                    addresses: Addresses(addresses),
                })
            }
            Err(error) => {
                drop(guard);
                if tokio::time::timeout(SHUTDOWN_TIMEOUT, started.stopped())
                    .await
                    .is_err()
                {
                    tracing::warn!("shutdown timeout: not every service stopped within {SHUTDOWN_TIMEOUT:?}");
                }
                Err(error)
            }
        }
    }

    /// The addresses of the daemon's ports.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until `token` is cancelled, then waits until every service has stopped.
    ///
    /// # Errors
    /// A service ended unexpectedly or did not stop in time.
    pub(crate) async fn run(mut self, token: CancellationToken) -> anyhow::Result<()> {
        // Checked first: services stop when the token is cancelled, which is not an error.
        let ended = tokio::select! {
            biased;
            () = token.cancelled() => None,
            name = self.first_stopped() => Some(name),
        };
        token.cancel();
        let stopped = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.wait_until_stopped()).await;
        match (ended, stopped) {
            (Some(name), _) => bail!("the service `{name}` stopped unexpectedly; see the log"),
            (None, Err(_)) => {
                bail!("shutdown timeout: not every service stopped within {SHUTDOWN_TIMEOUT:?}")
            }
            (None, Ok(())) => Ok(()),
        }
    }

    async fn first_stopped(&mut self) -> &'static str {
        let services = self.services.iter().map(|service| async {
            service.stopped().await;
            service.name()
        });
        let mut services: FuturesUnordered<_> = services.collect();
        tokio::select! {
            Some(name) = services.next() => name,
            _ = &mut self.admin => "admin",
        }
    }

    async fn wait_until_stopped(&mut self) {
        join_all(self.services.iter().map(|service| service.stopped())).await;
        self.plugins.stopped().await;
        join_all(self.clusters.iter().map(Client::close)).await;
        if !self.admin.is_finished() {
            let _ = (&mut self.admin).await;
        }
    }
}

/// Binds and starts everything except the admin port, which is only bound.
async fn start_all(
    settings: Settings,
    file: &Path,
    token: &CancellationToken,
    started: &mut StartedParts,
) -> anyhow::Result<(Plugins, transom_web::BoundPort, Registry, Option<ObservedStore>)> {
    open_files::raise_limit();
    let mut registry = Registry::default();
    let reserved = Reserved::default();
    let mut admin_port = settings.admin_port();
    admin_port.limits.max_body = admin::MAX_BODY;
    let admin = admin_port.bind().await.context(Unavailable)?;
    ReservedPort::new("admin", admin.addr()).reserve(&reserved);
    let cluster = Client::new(parts::cluster::config(&settings.cluster).context(Misconfigured)?)
        .context(Misconfigured)?;
    parts::cluster::warn_of_unverified_masters(&settings.cluster);
    started.clusters.push(cluster.clone());
    let mut bound = Vec::new();
    for kind in SERVICES {
        bound.extend(kind.bind(&settings, file).await?);
    }
    for port in bound.iter().flat_map(|service| service.ports()) {
        port.reserve(&reserved);
    }
    reserved::reserve_store(&reserved, &settings.store);
    reserved::reserve_masters(&reserved, &cluster);
    let store = match bound.iter().find_map(|service| service.daemon_prefix()) {
        Some(prefix) => {
            let store = StoreContext::open(&settings.store, prefix, &mut registry, token).await;
            Some(store.context(Unavailable)?)
        }
        None => None,
    };
    let server = parts::store::config(&settings.store).shown_server();
    let history = store
        .as_ref()
        .map(|context| (Arc::clone(&context.store), context.daemon_prefix.clone()));
    let plugins = parts::plugins::config(settings.plugins, history, reserved.clone())
        .context(Misconfigured)?
        .start(&mut registry, token.child_token())
        .await
        .context(Unavailable)?;
    started.plugins = Some(plugins.clone());
    let mut context = StartContext {
        cluster: &cluster,
        plugins: &plugins,
        store: store.as_ref(),
        registry: &mut registry,
        reserved: &reserved,
        token,
        clusters: &mut started.clusters,
        frameworks: Vec::new(),
    };
    for service in bound {
        started.services.extend(service.start(&mut context).await?);
    }
    for run in context.frameworks {
        run();
    }
    let store = store.map(|context| ObservedStore {
        store: context.store,
        server,
    });
    Ok((plugins, admin, registry, store))
}
