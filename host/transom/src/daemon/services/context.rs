//! The resources with which services start.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, v1};
use transom_config::parts;
use transom_framework::{Framework, FrameworkService, ServiceHandle};
use transom_plugin_host::{Plugins, Reserved};
use transom_scheduler::{MaintenanceMode, Metrics};
use transom_store::{Election, Measured, Store, transfer};
use transom_web::{BoundPort, DaemonKey};

use crate::daemon::reserved;

/// The store, which is only opened if a service needs it.
pub(crate) struct StoreContext {
    pub(crate) store: Arc<dyn Store>,
    /// The time to live of leases.
    lease: Duration,
    /// The prefix of this daemon's own keys, which is the same after a restart.
    pub(crate) daemon_prefix: String,
    /// The key of the daemons that share the store.
    daemon_key: DaemonKey,
}

impl StoreContext {
    pub(crate) async fn open(
        section: &transom_config::Store,
        daemon_prefix: String,
        registry: &mut Registry,
        token: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let store = open_store(section, token).await?;
        // An embedded store belongs to one daemon.
        let shared = (!section.server.starts_with("file:")).then(|| Arc::clone(&store));
        let daemon_key = transom_framework::daemon_key(shared).await;
        Ok(Self {
            daemon_key: daemon_key.context("the key of the daemons that share the store")?,
            store: Arc::new(Measured::new(store, registry)),
            lease: Duration::from_secs(section.lease_seconds),
            daemon_prefix,
        })
    }
}

/// The interval of checks of a store that does not answer yet.
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Opens the store and waits until it answers. Without the store, the daemon does not know its running
/// tasks; with a part of a copy it would launch the others again.
async fn open_store(
    section: &transom_config::Store,
    token: &CancellationToken,
) -> anyhow::Result<Arc<dyn Store>> {
    let store = parts::store::config(section).open().await?;
    let mut is_warned = false;
    loop {
        match transfer::check_finished(&*store).await {
            Ok(()) => return Ok(store),
            // The store logs the cause and retries.
            Err(transfer::Error::Store { source, .. }) if source.is_unconfirmed() => {
                if !is_warned {
                    tracing::warn!("waiting for the store; the daemon serves no requests until it responds");
                    if !section.server.starts_with("file:") {
                        tracing::warn!(
                            "if there is no Redis: `store.server = \"file:DIR\"` keeps everything in an embedded store in \
                             the directory DIR, for one daemon alone"
                        );
                    }
                    is_warned = true;
                }
            }
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            () = token.cancelled() => bail!("stopped while waiting for the store"),
            () = tokio::time::sleep(STORE_POLL_INTERVAL) => {}
        }
    }
}

/// The resources with which services start.
pub(crate) struct StartContext<'a> {
    pub(crate) cluster: &'a Client,
    pub(crate) plugins: &'a Plugins,
    pub(crate) store: Option<&'a StoreContext>,
    pub(crate) registry: &'a mut Registry,
    /// Addresses that plugins must not connect to.
    pub(crate) reserved: &'a Reserved,
    pub(crate) token: &'a CancellationToken,
    /// Additional clients of cluster managers that services created; they are closed after the
    /// services.
    pub(crate) clusters: &'a mut Vec<Client>,
    /// Functions that start the frameworks. They are called when every service has started, so that the
    /// daemon does not acquire a lease that it would have to release if a service failed to start.
    pub(crate) frameworks: Vec<Box<dyn FnOnce() + Send>>,
}

impl StartContext<'_> {
    /// The store.
    ///
    /// # Errors
    /// No store was opened, because no service has a daemon prefix.
    pub(crate) fn store(&self) -> anyhow::Result<&StoreContext> {
        self.store.ok_or_else(|| anyhow::anyhow!("no store is open"))
    }

    /// The port with the key of the daemons that share the store, which forward requests to it.
    pub(crate) fn forwarded_to(&self, port: BoundPort) -> anyhow::Result<BoundPort> {
        Ok(port.with_daemon_key(self.store()?.daemon_key.clone()))
    }

    /// Runs a service's framework once every service has started.
    pub(crate) fn run<S: FrameworkService>(
        &mut self,
        service: &ServiceHandle,
        framework: Framework,
        runner: S,
    ) {
        let service = service.clone();
        self.frameworks
            .push(Box::new(move || service.run(framework, runner)));
    }

    /// A client for another cluster manager than that of `[cluster]`.
    pub(crate) fn own_cluster(&mut self, config: transom_cluster::Config) -> anyhow::Result<Client> {
        let client = Client::new(config)?;
        reserved::reserve_masters(self.reserved, &client);
        self.clusters.push(client.clone());
        Ok(client)
    }

    /// The framework of a service. `address`: the address of the service for other daemons. The
    /// framework's name is the prefix of its keys in the store.
    pub(crate) fn framework(
        &mut self,
        info: v1::FrameworkInfo,
        address: &str,
        cluster: Client,
        revive_interval: Duration,
        maintenance: MaintenanceMode,
    ) -> anyhow::Result<Framework> {
        let prefix = info.name.clone();
        let StoreContext { store, lease, .. } = self.store()?;
        let election = Election::new(Arc::clone(store), Framework::lease(&prefix), address, *lease);
        Ok(Framework {
            election,
            metrics: Metrics::register(self.registry, &prefix),
            info,
            prefix,
            cluster,
            matchers: self.plugins.clone().into(),
            revive_interval,
            refuse_rest: None,
            maintenance,
        })
    }
}
