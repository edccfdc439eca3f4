//! Builds the service, and the handle to it.

use std::net::SocketAddr;
use std::sync::Arc;
use transom_common::error_chain;

use arc_swap::ArcSwapOption;
use axum::Router;
use http::HeaderName;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::Client;
use transom_plugin_host::Plugins;
use transom_scheduler::ServiceHandle;
use transom_store::Leadership;
use transom_web::{Access, Certificate, Forwarder, Limits, Listener};

use crate::api::{self, Api, Shared};
use crate::dependencies::{AgentDirectory, ClusterAdapter, Matcher};
use crate::job_index::JobIndex;
use crate::metrics::Metrics;
use crate::runner::Runner;
use crate::{Config, Error, Result};

/// Names the daemon that forwarded a request.
pub(crate) const VIA: HeaderName = HeaderName::from_static("x-transom-workflow-via");
/// The ALPN protocol.
const HTTP: &[u8] = b"http/1.1";
/// Maximum bytes of a body; a workload has a few kilobytes.
const MAX_BODY: usize = 1 << 20;

/// The handle of the service.
pub type Workflow = ServiceHandle;

/// The service with its port bound: the address is known, nothing is served yet.
#[derive(Debug)]
pub struct Bound {
    config: Config,
    listener: Listener,
}

impl Config {
    /// Binds the port.
    ///
    /// # Errors
    /// [`Error::Exposed`] for an address other than loopback without credentials and trusted
    /// networks, [`Error::Web`] if the port cannot be bound.
    pub fn bind(self) -> Result<Bound> {
        let wished = SocketAddr::new(self.listener, self.port);
        let anybody = self.credentials.is_none() && self.trusted_networks.is_none();
        if !self.listener.is_loopback() && anybody {
            return Err(Error::Exposed(wished));
        }
        let listener = Listener::bind("workflow", wished).map_err(Error::Web)?;
        Ok(Bound {
            config: self,
            listener,
        })
    }

    /// The host names and origins of the port.
    fn access(&self) -> Access {
        Access::new(
            "workflow",
            self.allowed_hosts.clone(),
            self.allowed_origins.clone(),
        )
        .named(&self.hostname)
    }

    /// Networks that may queue jobs and look them up without credentials.
    fn trusted(&self) -> Arc<[IpNet]> {
        match &self.trusted_networks {
            Some(networks) => networks.clone().into(),
            None => this_machine().into(),
        }
    }
}

fn this_machine() -> Vec<IpNet> {
    let v4 = Ipv4Net::new([127, 0, 0, 0].into(), 8).map(IpNet::from);
    let v6 = Ipv6Net::new([0, 0, 0, 0, 0, 0, 0, 1].into(), 128).map(IpNet::from);
    [v4, v6].into_iter().flatten().collect()
}

impl Bound {
    /// Host and port under which other daemons reach this one.
    pub fn advertised(&self) -> String {
        format!("{}:{}", self.config.hostname, self.listener.local_addr().port())
    }

    /// The bound address.
    pub fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves the port until `token` is cancelled. The caller has to [stand by](Runner::stand_by)
    /// or [lead](Runner::lead) with the [`Runner`]. `standing` is the leadership.
    ///
    /// # Errors
    /// [`Error::Web`] if the configured hostname or the certificate is invalid.
    pub async fn start(
        self,
        plugins: Plugins,
        cluster: Client,
        standing: watch::Receiver<Leadership>,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<(Workflow, Runner)> {
        self.start_with(
            Arc::new(plugins),
            Arc::new(ClusterAdapter::new(cluster)),
            standing,
            registry,
            token,
        )
        .await
    }

    pub(crate) async fn start_with(
        self,
        matcher: Arc<dyn Matcher>,
        cluster: Arc<dyn AgentDirectory>,
        standing: watch::Receiver<Leadership>,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<(Workflow, Runner)> {
        let own = self.advertised();
        let Self { config, listener } = self;
        let addr = listener.local_addr();
        let (listener, forwarder) = match &config.tls {
            None => (listener, Forwarder::new(VIA, &own).map_err(Error::Web)?),
            Some((certificate, key)) => {
                let certificate = Certificate::read(certificate, key, HTTP)
                    .await
                    .map_err(Error::Web)?;
                let issuers = certificate.issuers().await.map_err(Error::Web)?;
                let forwarder = Forwarder::secured(VIA, &own, &issuers).map_err(Error::Web)?;
                (listener.with_certificate(certificate), forwarder)
            }
        };
        if config.credentials.is_none() {
            tracing::info!(
                "workflow: api_username and api_password are not set: /v0/dags rejects every request, and only \
                 trusted networks may queue jobs"
            );
        }
        let (grace, access) = (config.grace, config.access());
        let limits = Limits {
            max_body: MAX_BODY,
            ..Limits::default()
        };
        let (router, runner) = assemble(
            config,
            forwarder,
            matcher,
            cluster,
            &standing,
            registry,
            token.clone(),
        );
        let router = transom_web::guarded(router, access);
        let lead = Arc::clone(&runner.lead);
        let tracker = TaskTracker::new();
        let stop = token.clone();
        tracker.spawn(async move {
            if let Err(error) = transom_web::serve(listener, router, limits, stop, grace).await {
                tracing::error!(
                    error = error_chain(&error),
                    "HTTP server of the workflow port failed"
                );
            }
        });
        tracker.close();
        let look = move || lead.load().as_ref().map(|lead| lead.scheduler.subscription());
        let workflow = ServiceHandle::new(addr, look, standing, tracker, token);
        Ok((workflow, runner))
    }
}

/// The router and the runner.
pub(crate) fn assemble(
    config: Config,
    forwarder: Forwarder,
    matcher: Arc<dyn Matcher>,
    cluster: Arc<dyn AgentDirectory>,
    standing: &watch::Receiver<Leadership>,
    registry: &mut Registry,
    stopping: CancellationToken,
) -> (Router, Runner) {
    let index = Arc::new(JobIndex::new());
    let lead = Arc::new(ArcSwapOption::empty());
    let (leader_changed, leader_watch) = watch::channel(());
    let runner = Runner {
        config: config.clone(),
        index: Arc::clone(&index),
        metrics: Metrics::register(registry),
        matcher: Arc::clone(&matcher),
        cluster: Arc::clone(&cluster),
        lead: Arc::clone(&lead),
        leader_changed,
    };
    let router = api::router(&Api(Arc::new(Shared {
        trusted: config.trusted(),
        config,
        index,
        matcher,
        cluster,
        lead,
        standing: standing.clone(),
        leader_watch,
        forwarder,
        stopping,
    })));
    (router, runner)
}
