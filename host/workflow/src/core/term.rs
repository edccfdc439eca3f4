//! Wires the core of a term: the actor with its queues, and the constraints' feasibility.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;
use transom_framework::feasibility::{self, ConstraintSets, Feasibility};
use transom_framework::{LeaderHandles, LeaderTerm, RunningTerm};
use transom_scheduler::{SchedulerApi, SubscriptionStatus};

use super::command::Command;
use super::{Dependencies, Stored};
use crate::dependencies::{AgentDirectory, Matcher};
use crate::job_index::JobIndex;
use crate::metrics::Metrics;
use crate::{Result, Settings};

/// Capacity of the command queue of the core.
const COMMAND_CAPACITY: usize = 4096;

/// Handles that only the leader has.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) core: mpsc::Sender<Command>,
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) feasibility: Arc<Feasibility>,
}

impl LeaderHandles for Handles {
    fn subscription(&self) -> SubscriptionStatus {
        self.scheduler.subscription()
    }
}

/// The parts of the service that all terms share.
#[derive(Debug)]
pub(crate) struct TermDependencies {
    pub(crate) config: Settings,
    /// Timeout of one call of the store.
    pub(crate) store_timeout: Duration,
    pub(crate) index: Arc<JobIndex>,
    pub(crate) metrics: Metrics,
    pub(crate) matcher: Arc<dyn Matcher>,
    pub(crate) cluster: Arc<dyn AgentDirectory>,
}

impl TermDependencies {
    /// Reads the stored jobs and starts the core with them.
    pub(crate) async fn start(&self, term: LeaderTerm) -> Result<(Handles, RunningTerm)> {
        let stored = Stored::load(term.store, &self.config.framework_name, self.store_timeout).await?;
        // All tasks of this term end with this token.
        let (token, tracker) = (term.token.child_token(), TaskTracker::new());
        let (commands_in, commands) = mpsc::channel(COMMAND_CAPACITY);
        let feasibility = Arc::new(Feasibility::default());
        let (constraint_sets, current_sets) = watch::channel(ConstraintSets::default());
        tracker.spawn(feasibility::keep_current(
            Arc::clone(&feasibility),
            Arc::<dyn AgentDirectory>::clone(&self.cluster),
            Arc::<dyn Matcher>::clone(&self.matcher),
            current_sets,
            token.clone(),
        ));
        let parts = Dependencies {
            scheduler: Arc::clone(&term.scheduler),
            events: term.events,
            commands,
            index: Arc::clone(&self.index),
            config: self.config.clone(),
            metrics: self.metrics.clone(),
            constraint_sets,
            feasibility: Arc::clone(&feasibility),
        };
        let core = super::start(stored, parts, &tracker, token.clone());
        let handles = Handles {
            core: commands_in,
            scheduler: term.scheduler,
            feasibility,
        };
        Ok((handles, RunningTerm::new(core, tracker, token)))
    }
}
