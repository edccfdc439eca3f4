//! Runs a framework while this daemon is its leader: the holder of the lease `<framework>/leader`, of the
//! daemons that share a store.
//!
//! The others stand by. The elected daemon starts a scheduler on the stored state and takes the framework
//! and its tasks over. Its actions depend on the lease in three ways: services are stopped when it ends,
//! calls to the cluster manager need remaining time by this machine's clock, and the store refuses later
//! writes. So a daemon that was paused does nothing before it holds the lease again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, LeadershipGuard, v1};
use transom_plugin_host::Plugins;
use transom_scheduler::{Events, Metrics, Scheduler};
use transom_store::{Election, LeaseTerm, Store, Term};

/// The pause before the next campaign after a term that could not start.
const CAMPAIGN_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A service with a framework.
pub(super) trait FrameworkService: Send {
    /// The minimum interval of REVIVE calls; `None`: the scheduler's default.
    const REVIVE_INTERVAL: Option<Duration> = None;

    /// Runs while another daemon is the leader; until dropped.
    fn stand_by(&mut self) -> impl Future<Output = Infallible> + Send;

    /// Runs with a scheduler until `token` is cancelled. `store` refuses writes of a former leader.
    fn lead(
        &mut self,
        scheduler: Scheduler,
        events: Events,
        store: Arc<dyn Store>,
        cluster: &Client,
        token: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl FrameworkService for transom_apps::Runner {
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

impl FrameworkService for transom_workflow::Runner {
    /// Workflow tasks are short, so their start delay matters.
    const REVIVE_INTERVAL: Option<Duration> = Some(Duration::from_millis(200));

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

/// A framework with everything needed to run it.
pub(super) struct Framework<S> {
    pub(super) election: Election,
    pub(super) role: S,
    pub(super) metrics: Metrics,
    pub(super) info: v1::FrameworkInfo,
    /// The prefix of its keys in the store.
    pub(super) prefix: String,
    pub(super) cluster: Client,
    pub(super) plugins: Plugins,
}

/// How a term ended.
enum End {
    /// The lease is gone, or the daemon stops.
    Over,
    /// The store could not be read; worth a retry.
    NotBegun,
}

/// A lease as the guard of the cluster's client.
#[derive(Debug)]
struct LeaseGuard(LeaseTerm);

impl LeadershipGuard for LeaseGuard {
    fn left(&self) -> Duration {
        self.0.left()
    }
}

impl<S: FrameworkService> Framework<S> {
    /// Campaigns, runs the framework while leader, and campaigns again; until `token` is cancelled.
    ///
    /// # Errors
    /// Invalid data in the store, or a service that ended unexpectedly.
    pub(super) async fn run(mut self, token: CancellationToken) -> anyhow::Result<()> {
        loop {
            let term = tokio::select! {
                () = token.cancelled() => return Ok(()),
                term = self.election.campaign() => term,
                never = self.role.stand_by() => match never {},
            };
            let outcome = self.serve(&term, &token).await;
            // Everything that acted for the framework has stopped.
            term.resign().await;
            if let End::NotBegun = outcome? {
                let _ = token
                    .run_until_cancelled(tokio::time::sleep(CAMPAIGN_RETRY_INTERVAL))
                    .await;
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
            Ok(()) if by_itself => bail!("a service of the framework stopped unexpectedly; see the log"),
            Ok(()) => Ok(End::Over),
            Err(error) if is_permanent(&error) => Err(error),
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "starting the framework failed; retrying"
                );
                Ok(End::NotBegun)
            }
        }
    }

    /// Scheduler and apps, until `stop` is cancelled; both have ended when it returns.
    async fn lead(&mut self, term: &Term, stop: &CancellationToken) -> anyhow::Result<()> {
        let parts = stop.child_token();
        let mut config = transom_scheduler::Config::new(
            self.cluster.with_guard(Arc::new(LeaseGuard(term.lease_term()))),
            self.info.clone(),
            term.fenced_store(),
            self.prefix.clone(),
            self.plugins.clone(),
        );
        config.revive_interval = S::REVIVE_INTERVAL.unwrap_or(config.revive_interval);
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

/// Whether a retry would fail the same way: invalid data in the store.
fn is_permanent(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(transom_scheduler::Error::Record { .. })
    ) || matches!(error.downcast_ref(), Some(transom_apps::Error::Record { .. }))
        || matches!(error.downcast_ref(), Some(transom_workflow::Error::Record { .. }))
}
