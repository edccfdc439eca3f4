//! Leading and standing by: the leader runs the apps, a standby shows the state that the leader
//! stores.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_scheduler::{Events, Scheduler, SchedulerApi};
use transom_store::Store;

use crate::bus::{self, Bus};
use crate::checks::{self, Checker};
use crate::core::command::Command;
use crate::core::mirror::{CatchUp, Mirror};
use crate::core::snapshot::Snapshot;
use crate::core::{self, Parts, Stored};
use crate::seams::Policies;
use crate::task::LaunchSettings;
use crate::{Config, Result};

/// Capacity of the queue of requests to the core.
const COMMANDS: usize = 256;
/// Capacity of the queue of check results to the core.
const REPORTS: usize = 1024;

/// The handles that only a leader has.
#[derive(Debug)]
pub(crate) struct LeaderHandles {
    pub(crate) core: mpsc::Sender<Command>,
    pub(crate) bus: Bus,
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
}

/// Counters, kept across terms.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    bus: bus::Metrics,
    checks: checks::Metrics,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            bus: bus::Metrics::register(registry),
            checks: checks::Metrics::register(registry),
        }
    }
}

/// Runs the service, as leader or standby. Between two terms readers see the last known state.
#[derive(Debug)]
pub struct Runner {
    pub(crate) config: Config,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) policies: Arc<dyn Policies>,
    pub(crate) metrics: Metrics,
    pub(crate) mirror: Mirror,
    pub(crate) syncs: mpsc::Receiver<CatchUp>,
    pub(crate) lead: Arc<ArcSwapOption<LeaderHandles>>,
    /// Notified when `lead` changes.
    pub(crate) leader_changed: watch::Sender<()>,
}

/// The scheduler with its events, and the agents, as a leader uses them.
pub(crate) struct Sides {
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) events: Events,
    pub(crate) agents: Option<transom_cluster::agent::Agents>,
}

impl Runner {
    /// Shows the state that the leader stores, until dropped.
    pub async fn stand_by(&mut self) -> Infallible {
        self.mirror.follow(&mut self.syncs).await
    }

    /// Runs the apps on a scheduler until `token` is cancelled or the scheduler ends. `store` must
    /// reject writes when another daemon leads.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) and [`Error::Record`](crate::Error::Record) when the
    /// stored state cannot be read; nothing has started then.
    pub async fn lead(
        &mut self,
        scheduler: Scheduler,
        events: Events,
        store: Arc<dyn Store>,
        cluster: &transom_cluster::Client,
        token: CancellationToken,
    ) -> Result<()> {
        let sides = Sides {
            scheduler: Arc::new(scheduler),
            events,
            agents: Some(cluster.agents()),
        };
        self.lead_with(sides, store, token).await
    }

    pub(crate) async fn lead_with(
        &mut self,
        sides: Sides,
        store: Arc<dyn Store>,
        token: CancellationToken,
    ) -> Result<()> {
        let stored = Stored::load(store, &self.config).await?;
        // Every task of this term ends with it.
        let token = token.child_token();
        let tracker = TaskTracker::new();
        let (commands_in, commands) = mpsc::channel(COMMANDS);
        let (reports_in, reports) = mpsc::channel(REPORTS);
        let bus = Bus::new(
            stored.term,
            Arc::clone(&self.policies),
            self.metrics.bus.clone(),
            tracker.clone(),
            token.clone(),
        );
        tracker.spawn(bus.clone().tell_of_plugins());
        let checker = Checker::new(
            Arc::clone(&self.policies),
            sides.agents,
            reports_in,
            self.metrics.checks.clone(),
            tracker.clone(),
            token.clone(),
        );
        let parts = Parts {
            scheduler: Arc::clone(&sides.scheduler),
            events: sides.events,
            commands,
            reports,
            checker,
            bus: bus.clone(),
            role: self.config.role.clone(),
            launch: LaunchSettings {
                checks: self.config.checks,
                env_vars_prefix: self.config.env_vars_prefix.as_str().into(),
            },
            plan_form: self.config.events.plan_format,
            snapshot: Arc::clone(&self.snapshot),
        };
        let core = core::start(stored, parts, &tracker, token.clone());
        self.set_leader(Some(LeaderHandles {
            core: commands_in,
            bus,
            scheduler: sides.scheduler,
        }));
        // Requests that waited for the mirror read the core's view now.
        while let Ok(sync) = self.syncs.try_recv() {
            let _ = sync.send(());
        }
        core.await;
        self.set_leader(None);
        token.cancel();
        tracker.close();
        tracker.wait().await;
        Ok(())
    }

    fn set_leader(&self, lead: Option<LeaderHandles>) {
        self.lead.store(lead.map(Arc::new));
        self.leader_changed.send_replace(());
    }
}
