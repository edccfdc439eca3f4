//! Runs a framework while this daemon is its leader: the holder of the lease `<framework>/leader`,
//! of the daemons that share a store.
//!
//! The other daemons stand by. The elected daemon starts a scheduler on the stored state and takes
//! over the framework and its tasks. Its actions depend on the lease in three ways: services are
//! stopped when the lease ends, calls to the cluster manager are sent only while the lease has time
//! left by this machine's clock, and the store rejects writes of a former leader (fencing). So a
//! daemon that was paused acts only after it has acquired the lease again.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::{Client, LeadershipGuard, v1};
use transom_common::error_chain;
use transom_scheduler::{Events, MaintenanceMode, Matchers, Metrics, SchedulerApi};
use transom_store::{Election, LeaseTerm, Store, Term};

use crate::{Error, InstalledHandles, Result, ServiceError};

/// The pause before the next campaign after a term that could not start.
const CAMPAIGN_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A service with a framework.
pub trait FrameworkService: Send + 'static {
    /// Why the service cannot lead.
    type Error: ServiceError;

    /// Runs until dropped, while another daemon is the leader. By default it does nothing: the port
    /// forwards requests to the leader.
    fn stand_by(&mut self) -> impl Future<Output = Infallible> + Send {
        std::future::pending()
    }

    /// Leads until `term.token` is cancelled or the scheduler ends.
    ///
    /// # Errors
    /// If the stored state cannot be read. In that case nothing has been started.
    fn lead(&mut self, term: LeaderTerm)
    -> impl Future<Output = std::result::Result<(), Self::Error>> + Send;
}

/// The resources of a service for the time that it leads.
pub struct LeaderTerm {
    /// The scheduler of the framework.
    pub scheduler: Arc<dyn SchedulerApi>,
    /// Its events, in order.
    pub events: Events,
    /// The lease of the term; `None` in tests.
    pub lease: Option<LeaseTerm>,
    /// A store that rejects writes when another daemon leads.
    pub store: Arc<dyn Store>,
    /// Cancelled when the term ends.
    pub token: CancellationToken,
    /// Ends the term early.
    pub abdication: Abdication,
}

/// Releases the lease of a term, so that another daemon can lead; the service then stands by. Clones
/// refer to the same term.
#[derive(Clone, Debug, Default)]
pub struct Abdication(CancellationToken);

impl Abdication {
    /// Ends the term. Returns immediately; the lease is released when all tasks that act for the
    /// framework have stopped.
    pub fn abdicate(&self) {
        self.0.cancel();
    }

    /// Whether [`abdicate`](Self::abdicate) was called in this term.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl fmt::Debug for LeaderTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderTerm").finish_non_exhaustive()
    }
}

/// A term whose service runs: its core, and the other tasks of the term.
pub struct RunningTerm {
    core: BoxFuture<'static, ()>,
    tracker: TaskTracker,
    token: CancellationToken,
}

impl RunningTerm {
    /// `core` resolves when the core has ended; then `token` is cancelled to end the tasks of
    /// `tracker`.
    pub fn new(
        core: impl Future<Output = ()> + Send + 'static,
        tracker: TaskTracker,
        token: CancellationToken,
    ) -> Self {
        Self {
            core: core.boxed(),
            tracker,
            token,
        }
    }

    /// Waits until the core has ended, withdraws the handles, and ends the tasks of the term.
    pub async fn run_to_end<H>(self, handles: InstalledHandles<H>) {
        self.core.await;
        drop(handles);
        self.token.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl fmt::Debug for RunningTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningTerm").finish_non_exhaustive()
    }
}

/// A framework with everything needed to run it.
#[derive(Debug)]
pub struct Framework {
    /// The election in which this daemon is a candidate.
    pub election: Election,
    /// The framework as the master knows it.
    pub info: v1::FrameworkInfo,
    /// The prefix of its keys in the store, without a trailing slash.
    pub prefix: String,
    /// The cluster manager.
    pub cluster: Client,
    /// What decides where tasks run.
    pub matchers: Matchers,
    /// The minimum interval of REVIVE calls.
    pub revive_interval: Duration,
    /// How long the unused rest of an accepted offer is not offered again; `None`: the scheduler's
    /// default.
    pub refuse_rest: Option<Duration>,
    /// How the scheduler treats agents for which maintenance is scheduled.
    pub maintenance: MaintenanceMode,
    /// The metrics of the scheduler, kept across terms.
    pub metrics: Metrics,
}

/// How a term ended.
enum TermEnd {
    /// The lease has ended, or the daemon stops.
    Over,
    /// The service released the lease.
    Abdicated,
    /// The term could not start, for an error that a retry may resolve.
    NotStarted,
}

/// A lease as the guard of the cluster's client.
#[derive(Debug)]
struct LeaseGuard(LeaseTerm);

impl LeadershipGuard for LeaseGuard {
    fn remaining(&self) -> Duration {
        self.0.remaining()
    }
}

impl Framework {
    /// The lease of a framework whose keys have this prefix.
    pub fn lease(prefix: &str) -> String {
        format!("{prefix}/leader")
    }

    /// Campaigns, runs the framework while leader, and campaigns again; until `token` is cancelled.
    /// After an abdication this daemon does not campaign for the duration of one lease, in which the
    /// other candidates campaign several times.
    ///
    /// # Errors
    /// If the store contains invalid data, or the service ends unexpectedly.
    pub async fn run<S: FrameworkService>(mut self, mut service: S, token: CancellationToken) -> Result<()> {
        let mut campaign_delay = Duration::ZERO;
        loop {
            let election = &mut self.election;
            let campaign = async {
                tokio::time::sleep(campaign_delay).await;
                election.campaign().await
            };
            let term = tokio::select! {
                biased;
                () = token.cancelled() => return Ok(()),
                term = campaign => term,
                never = service.stand_by() => match never {},
            };
            let outcome = self.serve(&mut service, &term, &token).await;
            // All tasks that acted for the framework have stopped.
            term.resign().await;
            campaign_delay = match outcome? {
                TermEnd::Over => Duration::ZERO,
                TermEnd::Abdicated => self.election.ttl(),
                TermEnd::NotStarted => CAMPAIGN_RETRY_INTERVAL,
            };
        }
    }

    /// Runs the framework for a term.
    async fn serve<S: FrameworkService>(
        &self,
        service: &mut S,
        term: &Term,
        token: &CancellationToken,
    ) -> Result<TermEnd> {
        let (stop, abdication) = (CancellationToken::new(), Abdication::default());
        let ending = async {
            tokio::select! {
                biased;
                () = term.ended().cancelled() => {}
                () = token.cancelled() => {}
                () = abdication.0.cancelled() => {
                    tracing::info!(framework = self.info.name, "the leader abdicates");
                }
                () = stop.cancelled() => {}
            }
            stop.cancel();
        };
        let leading = async {
            let outcome = self.lead(service, term, &stop, abdication.clone()).await;
            // The lease, or the daemon, may have ended at the same time.
            let unexpected = !stop.is_cancelled();
            stop.cancel();
            (outcome, unexpected)
        };
        let ((outcome, unexpected), ()) = tokio::join!(leading, ending);
        match outcome {
            Ok(()) if unexpected => Err(Error::Stopped {
                framework: self.info.name.clone(),
            }),
            Ok(()) if abdication.is_requested() => Ok(TermEnd::Abdicated),
            Ok(()) => Ok(TermEnd::Over),
            Err(error) if error.is_permanent() => Err(error),
            Err(error) => {
                tracing::warn!(
                    framework = self.info.name,
                    error = error_chain(&error),
                    "starting the framework failed; retrying"
                );
                Ok(TermEnd::NotStarted)
            }
        }
    }

    /// Runs the scheduler and the service until `stop` is cancelled. Both have ended when it returns.
    async fn lead<S: FrameworkService>(
        &self,
        service: &mut S,
        term: &Term,
        stop: &CancellationToken,
        abdication: Abdication,
    ) -> Result<()> {
        let token = stop.child_token();
        let guard = Arc::new(LeaseGuard(term.lease_term()));
        let mut config = transom_scheduler::Config::new(
            self.cluster.with_guard(guard),
            self.info.clone(),
            term.fenced_store(),
            self.prefix.clone(),
            self.matchers.clone(),
        );
        config.revive_interval = self.revive_interval;
        if let Some(refuse_rest) = self.refuse_rest {
            config.refuse_rest = refuse_rest;
        }
        config.maintenance = self.maintenance;
        let started = config.start(self.metrics.clone(), token.clone()).await;
        let (scheduler, events) = started.map_err(|source| Error::Scheduler {
            framework: self.info.name.clone(),
            source,
        })?;
        let outcome = service
            .lead(LeaderTerm {
                scheduler: Arc::new(scheduler.clone()),
                events,
                lease: Some(term.lease_term()),
                store: term.fenced_store(),
                token: token.clone(),
                abdication,
            })
            .await;
        token.cancel();
        scheduler.stopped().await;
        outcome.map_err(|error| Error::Service {
            framework: self.info.name.clone(),
            permanent: error.is_permanent(),
            source: Box::new(error),
        })
    }
}
