//! What a daemon does about the jobs: it leads, and runs them, or it stands by and passes requests on.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_scheduler::{Event, Scheduler, SchedulerApi};
use transom_store::Store;

use crate::core::command::Command;
use crate::core::{self, Dependencies, Stored};
use crate::dependencies::{Cluster, Matcher};
use crate::feasibility::{self, ConstraintSets, Feasibility};
use crate::job_index::JobIndex;
use crate::launch::ActiveJobs;
use crate::metrics::Metrics;
use crate::{Config, Result};

/// Requests that may wait for the core.
const COMMANDS: usize = 4096;

/// What a leading daemon has.
#[derive(Debug)]
pub(crate) struct LeaderHandles {
    pub(crate) core: mpsc::Sender<Command>,
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) feasibility: Arc<Feasibility>,
}

/// The one place from which the job is run.
#[derive(Debug)]
pub struct Runner {
    pub(crate) config: Config,
    pub(crate) index: Arc<JobIndex>,
    pub(crate) active: Arc<ActiveJobs>,
    pub(crate) metrics: Metrics,
    pub(crate) matcher: Arc<dyn Matcher>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) lead: Arc<ArcSwapOption<LeaderHandles>>,
    /// Told when `lead` changes.
    pub(crate) leader_changed: watch::Sender<()>,
}

impl Runner {
    /// Nothing is to be done while another daemon leads: requests are passed on to it.
    pub async fn stand_by(&mut self) -> Infallible {
        std::future::pending().await
    }

    /// Runs the jobs on a scheduler, until `token` is cancelled or the scheduler ends. `store`: what is written there must
    /// be refused when somebody else leads.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) and [`Error::Record`](crate::Error::Record) when what was stored cannot be
    /// read: nothing was begun.
    pub async fn lead(
        &mut self,
        scheduler: Scheduler,
        events: transom_scheduler::Events,
        store: Arc<dyn Store>,
        token: CancellationToken,
    ) -> Result<()> {
        let events = futures::stream::unfold(events, |mut events| async {
            events.next().await.map(|event| (event, events))
        });
        self.lead_with(Arc::new(scheduler), events.boxed(), store, token)
            .await
    }

    pub(crate) async fn lead_with(
        &mut self,
        scheduler: Arc<dyn SchedulerApi>,
        events: BoxStream<'static, Event>,
        store: Arc<dyn Store>,
        token: CancellationToken,
    ) -> Result<()> {
        let stored = Stored::load(store, &self.config.prefix).await?;
        // Everything of this turn ends with it.
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
            active: Arc::clone(&self.active),
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
