//! Starts discovery; the handle of a running one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_common::error_chain;
use transom_web::{Access, Limits, Listener, guarded};

use crate::cluster_follower::ClusterFollower;
use crate::config::check;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::settings::addresses;
use crate::shared::Shared;
use crate::source::Source;
use crate::zone::Zone;
use crate::zone_config::ZoneConfig;
use crate::{Config, Result, dns, http};

/// The time for HTTP requests in flight when the daemon stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A running discovery; clones share it.
#[derive(Clone, Debug)]
pub struct Discovery {
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Metrics,
    dns: Option<SocketAddr>,
    tls: Option<SocketAddr>,
    https: Option<SocketAddr>,
    http: Option<SocketAddr>,
    /// The routes of the HTTP port.
    routes: Option<Router>,
    tasks: TaskTracker,
}

impl Config {
    /// Binds the ports, follows the cluster and serves until `token` is cancelled.
    ///
    /// Until the first zone is built, lookups are answered with SERVFAIL and 503.
    pub async fn start(
        self,
        client: transom_cluster::Client,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<Discovery> {
        let config = Config {
            settings: self.settings.checked()?.with_system_resolvers(),
            ..self
        };
        let settings = &config.settings;
        let mut sockets = None;
        if settings.dns_on {
            sockets = Some(dns::Sockets::bind(settings).await?);
        }
        let mut listener = None;
        if settings.http_on {
            let addr = (settings.http_listener, settings.http_port).into();
            listener = Some(Listener::bind("discovery", addr)?);
        }
        let shared = Arc::new(Shared::new());
        let metrics = Metrics::register(registry, &shared);
        let tasks = TaskTracker::new();
        let mut discovery = Discovery {
            shared: Arc::clone(&shared),
            metrics: metrics.clone(),
            dns: sockets.as_ref().map(dns::Sockets::addr),
            tls: sockets.as_ref().and_then(dns::Sockets::tls_addr),
            https: sockets.as_ref().and_then(dns::Sockets::https_addr),
            http: listener.as_ref().map(Listener::local_addr),
            routes: None,
            tasks: tasks.clone(),
        };

        if let Some(sockets) = sockets {
            let handler = dns::Handler::new(
                settings,
                Arc::clone(&shared),
                metrics.clone(),
                dns::forward::Metrics::register(registry),
            );
            let secondaries = addresses(&settings.also_notify);
            tasks.spawn(dns::serve(sockets, handler, secondaries, token.clone()));
        }
        if let Some(listener) = listener {
            let router = http::router(
                &config,
                discovery.dns,
                discovery.http,
                Arc::clone(&shared),
                metrics.clone(),
            );
            discovery.routes = Some(router.clone());
            let router = transom_web::budgeted(router, "discovery");
            // Everybody may read, except for a page whose host name leads to this machine. Pages of
            // other sites get answers, as from mesos-dns, which browsers do not show them.
            let access = Access::new("discovery", settings.allowed_hosts.clone(), Vec::new());
            let router = guarded(router, access.on_loopback().only_hosts());
            let serving =
                transom_web::serve(listener, router, Limits::default(), token.clone(), SHUTDOWN_GRACE);
            tasks.spawn(async move {
                if let Err(error) = serving.await {
                    tracing::error!(
                        error = error_chain(&error),
                        "the discovery HTTP server stopped with an error"
                    );
                }
            });
        }
        let mut follower = ClusterFollower::new(
            client,
            zone_config(&config),
            settings.refresh_seconds,
            config.stream_timeouts,
            shared,
            metrics,
        );
        if !settings.allow_transfer.is_empty() {
            follower = follower.with_journal();
        }
        tasks.spawn(follower.run(token));
        tasks.close();
        Ok(discovery)
    }
}

impl Discovery {
    /// The address of DNS over UDP and TCP, if it is served.
    pub fn dns_addr(&self) -> Option<SocketAddr> {
        self.dns
    }

    /// The address of DNS over TLS, if it is served.
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls
    }

    /// The address of DNS over HTTPS, if it is served.
    pub fn https_addr(&self) -> Option<SocketAddr> {
        self.https
    }

    /// The address of HTTP, if it is served.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The routes of the HTTP port, which only read; `None` without the port.
    pub fn routes(&self) -> Option<Router> {
        self.routes.clone()
    }

    /// Whether the first zone has been built, so that lookups are answered, and has the tasks.
    pub fn is_ready(&self) -> bool {
        self.shared.zone.load().is_some() && self.problem().is_none()
    }

    /// Why records are missing, if any are.
    pub fn problem(&self) -> Option<Problem> {
        self.shared.problem.get()
    }

    /// The present source of the records: the event stream or polls of the state document.
    pub fn source(&self) -> Source {
        self.shared.source.get()
    }

    /// The zone being served.
    pub fn zone(&self) -> Option<Arc<Zone>> {
        self.shared.zone.load_full()
    }

    /// Waits until all tasks have ended; cancel the token first.
    pub async fn stopped(&self) {
        self.tasks.wait().await;
    }
}

pub(crate) fn zone_config(config: &Config) -> ZoneConfig {
    let settings = &config.settings;
    ZoneConfig {
        domain: settings.domain.clone(),
        labels: settings.label_rule(),
        ip_sources: check::ip_sources(&settings.ip_sources).unwrap_or_default(),
        masters: config.masters.clone(),
        name_server: (settings.soa_mname.clone(), own_addresses(settings.listener)),
        ttl: settings.ttl,
        weight: settings.srv_record_default_weight,
        weight_label: settings.weight_label.clone(),
        healthy_only: settings.healthy_only,
        include_staging: settings.include_staging,
        framework_ttl: settings.framework_ttl.clone(),
        reverse: settings.reverse_dns_on,
    }
}

/// The addresses of the DNS port: the listener's or, for a wildcard listener, the machine's own
/// without loopback.
fn own_addresses(listener: IpAddr) -> Vec<IpAddr> {
    if !listener.is_unspecified() {
        return vec![listener];
    }
    // A link-local address is useless without its interface.
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let addresses = crate::config::system::addresses().into_iter();
    addresses
        .filter(|ip| !ip.is_loopback() && !link_local(ip))
        .collect()
}
