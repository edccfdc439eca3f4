//! Leading (running the jobs) and standing by (forwarding requests).

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_scheduler::{Events, Scheduler, SchedulerApi};
use transom_store::Store;

use crate::core::command::Command;
use crate::core::{self, Dependencies, Stored};
use crate::dependencies::{AgentDirectory, Matcher};
use crate::feasibility::{self, ConstraintSets, Feasibility};
use crate::job_index::JobIndex;
use crate::metrics::Metrics;
use crate::{Config, Result};

/// Capacity of the command queue of the core.
const COMMANDS: usize = 4096;

/// Handles that only the leader has.
#[derive(Debug)]
pub(crate) struct LeaderHandles {
    pub(crate) core: mpsc::Sender<Command>,
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) feasibility: Arc<Feasibility>,
}

/// Runs the jobs while this daemon is the leader.
#[derive(Debug)]
pub struct Runner {
    pub(crate) config: Config,
    pub(crate) index: Arc<JobIndex>,
    pub(crate) metrics: Metrics,
    pub(crate) matcher: Arc<dyn Matcher>,
    pub(crate) cluster: Arc<dyn AgentDirectory>,
    pub(crate) lead: Arc<ArcSwapOption<LeaderHandles>>,
    /// Notified when `lead` changes.
    pub(crate) leader_changed: watch::Sender<()>,
}

impl Runner {
    /// Does nothing while another daemon leads: requests are forwarded to it.
    pub async fn stand_by(&mut self) -> Infallible {
        std::future::pending().await
    }

    /// Runs the jobs with a scheduler until `token` is cancelled or the scheduler ends. `store`
    /// must reject writes when another daemon leads.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) and [`Error::Record`](crate::Error::Record) if the
    /// stored jobs cannot be read: nothing was started.
    pub async fn lead(
        &mut self,
        scheduler: Scheduler,
        events: Events,
        store: Arc<dyn Store>,
        token: CancellationToken,
    ) -> Result<()> {
        self.lead_with(Arc::new(scheduler), events, store, token).await
    }

    pub(crate) async fn lead_with(
        &mut self,
        scheduler: Arc<dyn SchedulerApi>,
        events: Events,
        store: Arc<dyn Store>,
        token: CancellationToken,
    ) -> Result<()> {
        let stored = Stored::load(store, &self.config).await?;
        // All tasks of this term end with this token.
        let token = token.child_token();
        let tracker = TaskTracker::new();
        let (commands_in, commands) = mpsc::channel(COMMANDS);
        let feasibility = Arc::new(Feasibility::default());
        let (constraint_sets, current_sets) = watch::channel(ConstraintSets::default());
        tracker.spawn(feasibility::keep_current(
            Arc::clone(&feasibility),
            Arc::clone(&self.cluster),
            Arc::clone(&self.matcher),
            current_sets,
            token.clone(),
        ));
        let parts = Dependencies {
            scheduler: Arc::clone(&scheduler),
            events,
            commands,
            index: Arc::clone(&self.index),
            config: self.config.clone(),
            metrics: self.metrics.clone(),
            constraint_sets,
        };
        let core = core::start(stored, parts, &tracker, token.clone());
        self.set_leader(Some(LeaderHandles {
            core: commands_in,
            scheduler,
            feasibility,
        }));
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
