//! [`Plugins`]: starting the host, and each question's way to an instance.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    attempt,
    config::Config,
    directory::{Directory, Patience, Rescan},
    engine::{
        Engine,
        worlds::{
            bootstrap::Job as BootstrapJob,
            events::{Job as FilterJob, Opened},
            matcher::Job as MatcherJob,
        },
    },
    error::{CallError, Result},
    fleet::Fleet,
    metrics::Metrics,
    points::Points,
    pool::Surroundings,
    status::{Change, Status},
    types::{
        bootstrap,
        events::{self, OpenError},
        matcher, probe,
    },
    views::{OpenViews, View},
};

/// Changes that a slow follower may be behind.
const CHANGES_KEPT: usize = 256;
/// Callers of `rescan` that may wait.
const RESCANS: usize = 16;

impl Config {
    /// Admits what is in the directory, then watches it. A component that is refused is reported, not fatal; a directory that cannot be
    /// read is.
    pub async fn start(self, registry: &mut Registry, token: CancellationToken) -> Result<Plugins> {
        let metrics = Metrics::register(registry);
        let config = Arc::new(self);
        let around = Surroundings {
            engine: Engine::new()?,
            tracker: TaskTracker::new(),
            token: token.child_token(),
        };
        let (changes, _) = broadcast::channel(CHANGES_KEPT);
        let (rescan, asked) = mpsc::channel(RESCANS);
        let mut directory = Directory {
            config: Arc::clone(&config),
            around: around.clone(),
            table: Arc::default(),
            metrics: metrics.clone(),
            changes: changes.clone(),
            seen: std::collections::BTreeMap::new(),
            skipped: false,
        };
        directory.scan(Patience::Now).await?;
        let inner = Inner {
            points: Arc::new(Points {
                config,
                table: Arc::clone(&directory.table),
                token: around.token.clone(),
            }),
            metrics,
            changes,
            rescan,
            views: Mutex::default(),
            tracker: around.tracker.clone(),
            next_view: AtomicU64::new(1),
        };
        around.tracker.spawn(directory.run(asked));
        around.tracker.close();
        Ok(Plugins(Arc::new(inner)))
    }
}

/// The plugin host's handle. Cheap to clone.
#[derive(Clone)]
pub struct Plugins(Arc<Inner>);

struct Inner {
    points: Arc<Points>,
    metrics: Metrics,
    changes: broadcast::Sender<Change>,
    rescan: mpsc::Sender<Rescan>,
    /// Queries that somebody holds a view of.
    views: Mutex<OpenViews>,
    next_view: AtomicU64,
    tracker: TaskTracker,
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugins")
            .field("dir", &self.0.points.config.dir)
            .finish_non_exhaustive()
    }
}

impl Plugins {
    /// Every plugin that serves or was refused, by name.
    pub fn list(&self) -> Vec<Status> {
        self.0.points.table.load().status(&self.0.metrics)
    }

    /// What happens from now on. A follower that falls far behind is told how many changes it missed.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.0.changes.subscribe()
    }

    /// Looks at the directory now; returns what this changed when all of it was admitted or refused.
    pub async fn rescan(&self) -> Vec<Change> {
        let (answer, changes) = oneshot::channel();
        if self.0.rescan.send(answer).await.is_err() {
            return Vec::new();
        }
        changes.await.unwrap_or_default()
    }

    /// An empty fleet. `home_region` is the master's own.
    pub fn fleet(&self, home_region: Option<String>) -> Fleet {
        Fleet::new(Arc::clone(&self.0.points), home_region)
    }

    /// What is wrong with these conditions. Empty: nothing.
    pub async fn check_conditions(
        &self,
        conditions: &[matcher::Condition],
    ) -> Result<Vec<matcher::ConditionError>, CallError> {
        let version = self.0.points.matcher()?;
        let _in_flight = version.meta.enter()?;
        let conditions = conditions.to_vec();
        version
            .ask(version.least_loaded(), |reply| MatcherJob::Check {
                conditions,
                reply,
            })
            .await
    }

    /// Makes a query ready. Views of equal queries share one.
    pub async fn open_view(&self, query: events::Query) -> Result<View, OpenError> {
        let version = self.0.points.filter()?;
        let _in_flight = version.meta.enter()?;
        let opened = self.opened(query);
        let view = Arc::clone(&opened);
        version
            .ask(version.near(opened.id as usize), |reply| FilterJob::Open {
                view,
                reply,
            })
            .await?
            .map_err(OpenError::Refused)?;
        Ok(View::new(Arc::clone(&self.0.points), opened))
    }

    /// What a container runs first.
    pub async fn prepare(
        &self,
        context: bootstrap::Context,
        script: Vec<u8>,
    ) -> Result<bootstrap::Prepared, bootstrap::PrepareError> {
        let version = self.0.points.bootstrap()?;
        let _in_flight = version.meta.enter()?;
        let job = |reply| BootstrapJob {
            context,
            script,
            reply,
        };
        Ok(version.ask(version.least_loaded(), job).await??)
    }

    /// One look at one task. `runner` runs commands for components that were granted that.
    pub async fn probe(
        &self,
        kind: probe::Kind,
        request: probe::Request,
        runner: Option<Arc<dyn probe::Runner>>,
    ) -> Result<probe::Outcome, probe::Failure> {
        let version = self
            .0
            .points
            .prober(&kind)
            .map_err(|error| attempt::failure(&error))?;
        attempt::look(&version, request, runner, &self.0.points.token).await
    }

    /// Returns when every task of the plugin host has ended, once the token given at start was cancelled.
    pub async fn stopped(&self) {
        self.0.tracker.wait().await;
    }

    fn opened(&self, query: events::Query) -> Arc<Opened> {
        let mut views = self.0.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.get_or_insert(query, || self.0.next_view.fetch_add(1, Relaxed))
    }
}
