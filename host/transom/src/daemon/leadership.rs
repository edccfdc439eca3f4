//! Who runs a framework, of the daemons that share a store: the one that holds the lease `<framework>/leader`.
//!
//! The others stand by. Whoever is elected starts a scheduler on what is stored and takes the framework over, tasks and all.
//! What it may do is tied to its lease three times over: parts are stopped when it ends, no call is sent to the cluster
//! manager after its last moment by this machine's clock, and the store refuses what is written later. So a daemon that was
//! stopped for a while, and goes on as if nothing had happened, does nothing before it holds the lease anew.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, LeadershipGuard, v1};
use transom_plugins::Plugins;
use transom_scheduler::{Events, Metrics, Scheduler};
use transom_store::{Election, LeaseTerm, Store, Term};

/// Before standing again after a term that could not be begun.
const PAUSE: Duration = Duration::from_secs(1);

/// A job that a framework is run for.
pub(super) trait Job: Send {
    /// How often offers are called back at most; `None`: as the scheduler sees fit.
    const REVIVE: Option<Duration> = None;

    /// What is done while another daemon leads; until dropped.
    fn stand_by(&mut self) -> impl Future<Output = Infallible> + Send;

    /// Runs on a scheduler until `token` is cancelled, writing to `store`, which refuses who does not lead any more.
    fn lead(
        &mut self,
        scheduler: Scheduler,
        events: Events,
        store: Arc<dyn Store>,
        cluster: &Client,
        token: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl Job for transom_apps::Runner {
    async fn stand_by(&mut self) -> Infallible {
        transom_apps::Runner::stand_by(self).await
    }

    async fn lead(
        &mut self,
        scheduler: Scheduler,
        events: Events,
        store: Arc<dyn Store>,
        cluster: &Client,
        token: CancellationToken,
    ) -> anyhow::Result<()> {
        Ok(transom_apps::Runner::lead(self, scheduler, events, store, cluster, token).await?)
    }
}

impl Job for transom_workflow::Runner {
    /// Tasks of a workflow are short, and somebody waits for each.
    const REVIVE: Option<Duration> = Some(Duration::from_millis(200));

    async fn stand_by(&mut self) -> Infallible {
        transom_workflow::Runner::stand_by(self).await
    }

    async fn lead(
        &mut self,
        scheduler: Scheduler,
        events: Events,
        store: Arc<dyn Store>,
        _cluster: &Client,
        token: CancellationToken,
    ) -> anyhow::Result<()> {
        Ok(transom_workflow::Runner::lead(self, scheduler, events, store, token).await?)
    }
}

/// A framework and what it takes to run it.
pub(super) struct Framework<J> {
    pub(super) election: Election,
    pub(super) role: J,
    pub(super) metrics: Metrics,
    pub(super) info: v1::FrameworkInfo,
    /// What its keys in the store begin with.
    pub(super) prefix: String,
    pub(super) cluster: Client,
    pub(super) plugins: Plugins,
}

/// How a term ended.
enum End {
    /// The lease is gone, or the daemon stops.
    Over,
    /// The store could not be read: worth another try.
    NotBegun,
}

/// A lease as the cluster's client asks for it.
#[derive(Debug)]
struct Leased(LeaseTerm);

impl LeadershipGuard for Leased {
    fn left(&self) -> Duration {
        self.0.left()
    }
}

impl<J: Job> Framework<J> {
    /// Stands for the lease, runs the framework while it is held, and stands again; until `token` is cancelled.
    ///
    /// # Errors
    /// Something that was stored cannot be read, or a part ended by itself.
    pub(super) async fn run(mut self, token: CancellationToken) -> anyhow::Result<()> {
        loop {
            let term = tokio::select! {
                () = token.cancelled() => return Ok(()),
                term = self.election.campaign() => term,
                never = self.role.stand_by() => match never {},
            };
            let outcome = self.serve(&term, &token).await;
            // Everything that acted in its name has stopped.
            term.resign().await;
            if let End::NotBegun = outcome? {
                let _ = token.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
            }
        }
    }

    /// Runs the framework for a term.
    async fn serve(&mut self, term: &Term, token: &CancellationToken) -> anyhow::Result<End> {
        let stop = CancellationToken::new();
        let ending = async {
            tokio::select! {
                () = term.ended().cancelled() => {}
                () = token.cancelled() => {}
                () = stop.cancelled() => {}
            }
            stop.cancel();
        };
        let leading = async {
            let outcome = self.lead(term, &stop).await;
            // The lease, or the daemon, may have ended at the same time.
            let by_itself = !stop.is_cancelled();
            stop.cancel();
            (outcome, by_itself)
        };
        let ((outcome, by_itself), ()) = tokio::join!(leading, ending);
        match outcome {
            Ok(()) if by_itself => bail!("a part ended by itself; the log says why"),
            Ok(()) => Ok(End::Over),
            Err(error) if is_permanent(&error) => Err(error),
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the framework is not run yet; trying again"
                );
                Ok(End::NotBegun)
            }
        }
    }

    /// Scheduler and apps, until `stop` is cancelled; both have ended when it returns.
    async fn lead(&mut self, term: &Term, stop: &CancellationToken) -> anyhow::Result<()> {
        let parts = stop.child_token();
        let mut config = transom_scheduler::Config::new(
            self.cluster.with_guard(Arc::new(Leased(term.lease_term()))),
            self.info.clone(),
            term.fenced_store(),
            self.prefix.clone(),
            self.plugins.clone(),
        );
        config.revive_interval = J::REVIVE.unwrap_or(config.revive_interval);
        let (scheduler, events) = config.start(self.metrics.clone(), parts.clone()).await?;
        let outcome = self
            .role
            .lead(
                scheduler.clone(),
                events,
                term.fenced_store(),
                &self.cluster,
                parts.clone(),
            )
            .await;
        parts.cancel();
        scheduler.stopped().await;
        outcome
    }
}

/// Whether another try would end the same way: a record that cannot be read.
fn is_permanent(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(transom_scheduler::Error::Record { .. })
    ) || matches!(error.downcast_ref(), Some(transom_apps::Error::Record { .. }))
        || matches!(error.downcast_ref(), Some(transom_workflow::Error::Record { .. }))
}
