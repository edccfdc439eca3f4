//! Putting the job together, and the handle to it.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::StreamExt;
use futures::stream::BoxStream;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_plugins::Plugins;
use transom_scheduler::{Event, Scheduler};
use transom_store::Store;
use transom_web::{Limits, Listener};

use crate::api::{self, Api, Shared};
use crate::bus::{self, Bus};
use crate::checks::{self, Checker};
use crate::core::snapshot::Snapshot;
use crate::core::{self, Parts, Stored};
use crate::seams::{Launcher, Policies};
use crate::{Config, Error, Result};

/// Requests that may wait for the core.
const COMMANDS: usize = 256;
/// Results of checks that may wait for the core.
const REPORTS: usize = 1024;

/// The running job. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Apps {
    addr: SocketAddr,
    scheduler: Arc<dyn Launcher>,
    tracker: TaskTracker,
    token: CancellationToken,
}

impl Apps {
    /// Where the HTTP port really listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether requests can be carried out: the framework is subscribed, and the job is not stopping.
    pub fn ready(&self) -> bool {
        !self.token.is_cancelled() && self.scheduler.connection().connected
    }

    /// Returns when everything of the job has ended; cancel the token given at the start first.
    pub async fn stopped(&self) {
        self.tracker.wait().await;
    }
}

/// The other sides, as traits.
pub(crate) struct Sides {
    pub(crate) scheduler: Arc<dyn Launcher>,
    pub(crate) events: BoxStream<'static, Event>,
    pub(crate) policies: Arc<dyn Policies>,
    pub(crate) agents: Option<transom_cluster::agent::Agents>,
}

impl Config {
    /// Starts the job. It ends with `token`, or when the scheduler does.
    ///
    /// # Errors
    /// [`Error::Exposed`] for a listener that other machines can reach, [`Error::Web`] when the port cannot be taken,
    /// [`Error::Store`] and [`Error::Record`] when what was stored cannot be read.
    #[expect(
        clippy::too_many_arguments,
        reason = "these are the parts that the daemon is composed of"
    )]
    pub async fn start(
        self,
        scheduler: Scheduler,
        events: transom_scheduler::Events,
        store: Arc<dyn Store>,
        plugins: Plugins,
        cluster: transom_cluster::Client,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<Apps> {
        let events = futures::stream::unfold(events, |mut events| async {
            events.next().await.map(|event| (event, events))
        });
        let sides = Sides {
            scheduler: Arc::new(scheduler),
            events: events.boxed(),
            policies: Arc::new(plugins),
            agents: Some(cluster.agents()),
        };
        self.start_with(sides, store, registry, token).await
    }

    pub(crate) async fn start_with(
        self,
        sides: Sides,
        store: Arc<dyn Store>,
        registry: &mut Registry,
        token: CancellationToken,
    ) -> Result<Apps> {
        let wished = SocketAddr::new(self.listener, self.port);
        if !self.listener.is_loopback() {
            return Err(Error::Exposed(wished));
        }
        let listener = Listener::bind("apps", wished).map_err(Error::Web)?;
        let addr = listener.local_addr();
        let stored = Stored::load(store, &self.prefix).await?;

        let Sides {
            scheduler,
            events,
            policies,
            agents,
        } = sides;
        let tracker = TaskTracker::new();
        let (commands_in, commands) = mpsc::channel(COMMANDS);
        let (reports_in, reports) = mpsc::channel(REPORTS);
        let snapshot = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
        let metrics = bus::Metrics::register(registry);
        let bus = Bus::new(
            stored.term,
            Arc::clone(&policies),
            metrics,
            tracker.clone(),
            token.clone(),
        );
        let metrics = checks::Metrics::register(registry);
        let checker = Checker::new(
            Arc::clone(&policies),
            agents,
            reports_in,
            metrics,
            tracker.clone(),
            token.clone(),
        );
        let parts = Parts {
            scheduler: Arc::clone(&scheduler),
            events,
            commands,
            reports,
            checker,
            bus: bus.clone(),
            role: self.role.clone(),
            checks: self.checks,
            plan_form: self.events.plan_format,
            snapshot: Arc::clone(&snapshot),
        };
        core::start(stored, parts, &tracker, token.clone());

        let grace = self.grace;
        let shared = Shared {
            config: self,
            addr,
            snapshot,
            core: commands_in,
            bus,
            policies,
            scheduler: Arc::clone(&scheduler),
        };
        let router = api::router(&Api {
            shared: Arc::new(shared),
        });
        let stop = token.clone();
        tracker.spawn(async move {
            if let Err(error) = transom_web::serve(listener, router, Limits::default(), stop, grace).await {
                tracing::error!(%error, "the apps port is not served any more");
            }
        });
        tracker.close();
        Ok(Apps {
            addr,
            scheduler,
            tracker,
            token,
        })
    }
}
