//! Composition of the service, and its handle.

use std::net::SocketAddr;
use std::sync::Arc;
use transom_common::error_chain;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderName;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_plugin_host::Plugins;
use transom_scheduler::ServiceHandle;
use transom_store::{Leadership, Store};
use transom_web::{Access, Forwarder, Limits, Listener};

use crate::api::{self, Api, Shared};
use crate::core::mirror::Mirror;
use crate::core::snapshot::Snapshot;
use crate::runner::{Metrics, Runner};
use crate::seams::Policies;
use crate::{Config, Error, Result};

/// Capacity of the queue of requests that wait for the mirror to catch up.
const SYNCS: usize = 256;
/// Upstream's name for the header that lists the daemons that forwarded a request.
const VIA: HeaderName = HeaderName::from_static("x-marathon-via");

/// The handle of the running service.
pub type Apps = ServiceHandle;

/// The service with its port bound: the address is known, but nothing is served yet.
#[derive(Debug)]
pub struct Bound {
    config: Config,
    listener: Listener,
}

impl Config {
    /// The host names and origins that the port accepts.
    fn access(&self) -> Access {
        Access::new("apps", self.allowed_hosts.clone(), self.allowed_origins.clone()).named(&self.hostname)
    }

    /// Binds the port.
    ///
    /// # Errors
    /// [`Error::Exposed`] for a listener that other machines can reach while no network is trusted,
    /// [`Error::Web`] when the port cannot be bound.
    pub fn bind(self) -> Result<Bound> {
        let wished = SocketAddr::new(self.listener, self.port);
        if !self.listener.is_loopback() && self.trusted_networks.is_empty() {
            return Err(Error::Exposed(wished));
        }
        let listener = Listener::bind("apps", wished).map_err(Error::Web)?;
        Ok(Bound {
            config: self,
            listener,
        })
    }
}

impl Bound {
    /// Host and port that clients and other daemons use.
    pub fn advertised(&self) -> String {
        format!("{}:{}", self.config.hostname, self.listener.local_addr().port())
    }

    /// The bound address, with the actual port.
    pub fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Reads the stored state and serves it until `token` is cancelled. The caller must
    /// [lead](Runner::lead) or [stand by](Runner::stand_by) with the returned [`Runner`].
    /// `standing` reports the current leader.
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be read, [`Error::Web`] when the configured hostname
    /// is invalid.
    pub async fn start(
        self,
        store: Arc<dyn Store>,
        plugins: Plugins,
        standing: watch::Receiver<Leadership>,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<(Apps, Runner)> {
        self.start_with(store, Arc::new(plugins), standing, registry, token)
            .await
    }

    pub(crate) async fn start_with(
        self,
        store: Arc<dyn Store>,
        policies: Arc<dyn Policies>,
        standing: watch::Receiver<Leadership>,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<(Apps, Runner)> {
        let own = self.advertised();
        let Self { config, listener } = self;
        let addr = listener.local_addr();
        let forwarder = Forwarder::new(VIA, &own).map_err(Error::Web)?;
        let snapshot = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
        let mut mirror = Mirror::new(store, &config.prefix, Arc::clone(&snapshot));
        mirror.load().await?;

        let (syncs, syncs_in) = mpsc::channel(SYNCS);
        let lead = Arc::new(ArcSwapOption::empty());
        let (leader_changed, leader_watch) = watch::channel(());
        let runner = Runner {
            config: config.clone(),
            snapshot: Arc::clone(&snapshot),
            policies: Arc::clone(&policies),
            metrics: Metrics::register(registry),
            mirror,
            syncs: syncs_in,
            lead: Arc::clone(&lead),
            leader_changed,
        };
        let grace = config.grace;
        let (networks, access) = (config.trusted_networks.clone().into(), config.access());
        let router = api::router(&Api {
            shared: Arc::new(Shared {
                config,
                addr,
                own,
                snapshot,
                policies,
                lead: Arc::clone(&lead),
                standing: standing.clone(),
                leader_watch,
                forwarder,
                syncs,
            }),
        });
        let router = transom_web::guarded(transom_web::allow_networks(router, networks), access);
        let tracker = TaskTracker::new();
        let stop = token.clone();
        tracker.spawn(async move {
            if let Err(error) = transom_web::serve(listener, router, Limits::default(), stop, grace).await {
                tracing::error!(error = error_chain(&error), "HTTP server of the apps port failed");
            }
        });
        tracker.close();
        let look = move || lead.load().as_ref().map(|lead| lead.scheduler.subscription());
        let apps = ServiceHandle::new(addr, look, standing, tracker, token);
        Ok((apps, runner))
    }
}
