//! What a daemon does about the jobs: it leads, and runs them, or it stands by and passes requests on.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_scheduler::{Event, Launcher, Scheduler};
use transom_store::Store;

use crate::core::command::Command;
use crate::core::{self, Parts, Stored};
use crate::launch::Book;
use crate::metrics::Metrics;
use crate::seams::{Cluster, Matcher};
use crate::survey::{self, Sorts, Survey};
use crate::table::Table;
use crate::{Config, Result};

/// Requests that may wait for the core.
const COMMANDS: usize = 4096;

/// What a leading daemon has.
#[derive(Debug)]
pub(crate) struct Lead {
    pub(crate) core: mpsc::Sender<Command>,
    pub(crate) scheduler: Arc<dyn Launcher>,
    pub(crate) survey: Arc<Survey>,
}

/// The one place from which the job is run.
#[derive(Debug)]
pub struct Role {
    pub(crate) config: Config,
    pub(crate) table: Arc<Table>,
    pub(crate) book: Arc<Book>,
    pub(crate) metrics: Metrics,
    pub(crate) matcher: Arc<dyn Matcher>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) lead: Arc<ArcSwapOption<Lead>>,
    /// Told when `lead` changes.
    pub(crate) turns: watch::Sender<()>,
}

impl Role {
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
        scheduler: Arc<dyn Launcher>,
        events: BoxStream<'static, Event>,
        store: Arc<dyn Store>,
        token: CancellationToken,
    ) -> Result<()> {
        let stored = Stored::load(store, &self.config.prefix).await?;
        // Everything of this turn ends with it.
        let token = token.child_token();
        let tracker = TaskTracker::new();
        let (commands_in, commands) = mpsc::channel(COMMANDS);
        let survey = Arc::new(Survey::default());
        let (sorts, sorts_now) = watch::channel(Sorts::default());
        tracker.spawn(survey::keep(
            Arc::clone(&survey),
            Arc::clone(&self.cluster),
            Arc::clone(&self.matcher),
            sorts_now,
            token.clone(),
        ));
        let parts = Parts {
            scheduler: Arc::clone(&scheduler),
            events,
            commands,
            table: Arc::clone(&self.table),
            book: Arc::clone(&self.book),
            config: self.config.clone(),
            metrics: self.metrics.clone(),
            sorts,
        };
        let core = core::start(stored, parts, &tracker, token.clone());
        self.turn(Some(Lead {
            core: commands_in,
            scheduler,
            survey,
        }));
        core.await;
        self.turn(None);
        token.cancel();
        tracker.close();
        tracker.wait().await;
        Ok(())
    }

    fn turn(&self, lead: Option<Lead>) {
        self.lead.store(lead.map(Arc::new));
        self.turns.send_replace(());
    }
}
