//! Putting the job together, and the handle to it.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::Router;
use http::HeaderName;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::Client;
use transom_plugins::Plugins;
use transom_scheduler::Job;
use transom_store::Leadership;
use transom_web::{Access, Certificate, Forwarder, Limits, Listener};

use crate::api::{self, Api, Shared};
use crate::launch::Book;
use crate::metrics::Metrics;
use crate::role::Role;
use crate::seams::{Cluster, Matcher, Real};
use crate::table::Table;
use crate::{Config, Error, Result};

/// Tells who passed a request on.
pub(crate) const VIA: HeaderName = HeaderName::from_static("x-transom-workflow-via");
/// What is spoken within TLS (ALPN).
const HTTP: &[u8] = b"http/1.1";
/// Bytes of a body: a workload with everything that belongs to it is some kilobytes.
const MAX_BODY: usize = 1 << 20;

/// The job, as others see it.
pub type Workflow = Job;

/// The job with its port taken: its address is known, nothing is served yet.
#[derive(Debug)]
pub struct Bound {
    config: Config,
    listener: Listener,
}

impl Config {
    /// Takes the port.
    ///
    /// # Errors
    /// [`Error::Exposed`] for a listener that other machines can reach when there are neither credentials nor networks
    /// to be trusted, [`Error::Web`] when the port cannot be taken.
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

    /// Which host names and origins the port answers.
    fn access(&self) -> Access {
        Access::new(
            "workflow",
            self.allowed_hosts.clone(),
            self.allowed_origins.clone(),
        )
        .named(&self.hostname)
    }

    /// Whose requests may queue and look up without credentials.
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
    /// Host and port by which other daemons reach this one.
    pub fn advertised(&self) -> String {
        format!("{}:{}", self.config.hostname, self.listener.local_addr().port())
    }

    /// Where it listens, with the port that it really has.
    pub fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves the port until `token` is cancelled. What runs the jobs is the [`Role`], which somebody has to
    /// [stand by](Role::stand_by) or [lead](Role::lead) with. `standing` tells who leads.
    ///
    /// # Errors
    /// [`Error::Web`] when the configured hostname is none, or the certificate cannot be used.
    pub async fn start(
        self,
        plugins: Plugins,
        cluster: Client,
        standing: watch::Receiver<Leadership>,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<(Workflow, Role)> {
        self.start_with(
            Arc::new(plugins),
            Arc::new(Real::new(cluster)),
            standing,
            registry,
            token,
        )
        .await
    }

    pub(crate) async fn start_with(
        self,
        matcher: Arc<dyn Matcher>,
        cluster: Arc<dyn Cluster>,
        standing: watch::Receiver<Leadership>,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<(Workflow, Role)> {
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
                "workflow: api_username and api_password are not set, so /v0/dags answers nobody and only trusted \
                 networks may queue jobs"
            );
        }
        let (grace, access) = (config.grace, config.access());
        let limits = Limits {
            max_body: MAX_BODY,
            ..Limits::default()
        };
        let (router, role) = assemble(
            config,
            forwarder,
            matcher,
            cluster,
            &standing,
            registry,
            token.clone(),
        );
        let router = transom_web::guarded(router, access);
        let lead = Arc::clone(&role.lead);
        let tracker = TaskTracker::new();
        let stop = token.clone();
        tracker.spawn(async move {
            if let Err(error) = transom_web::serve(listener, router, limits, stop, grace).await {
                tracing::error!(%error, "the workflow port is not served any more");
            }
        });
        tracker.close();
        let look = move || lead.load().as_ref().map(|lead| lead.scheduler.connection());
        let workflow = Job::new(addr, look, standing, tracker, token);
        Ok((workflow, role))
    }
}

/// What answers requests, and what runs the jobs.
pub(crate) fn assemble(
    config: Config,
    forwarder: Forwarder,
    matcher: Arc<dyn Matcher>,
    cluster: Arc<dyn Cluster>,
    standing: &watch::Receiver<Leadership>,
    registry: &mut Registry,
    stopping: CancellationToken,
) -> (Router, Role) {
    let (table, book) = (Arc::new(Table::new()), Arc::new(Book::default()));
    let lead = Arc::new(ArcSwapOption::empty());
    let (turns, turned) = watch::channel(());
    let role = Role {
        config: config.clone(),
        table: Arc::clone(&table),
        book: Arc::clone(&book),
        metrics: Metrics::register(registry),
        matcher: Arc::clone(&matcher),
        cluster: Arc::clone(&cluster),
        lead: Arc::clone(&lead),
        turns,
    };
    let router = api::router(&Api(Arc::new(Shared {
        trusted: config.trusted(),
        config,
        table,
        book,
        matcher,
        cluster,
        lead,
        standing: standing.clone(),
        turned,
        forwarder,
        stopping,
    })));
    (router, role)
}
