//! [`Plugins`]: starting the host, and each question's way to an instance.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::Desk,
    agent_set::AgentSet,
    attempt,
    cache::Cache,
    config::Config,
    directory::{Directory, Order, Parts},
    engine::{
        Compilers, Engine, Haste,
        worlds::{
            bootstrap::Job as BootstrapJob,
            events::{Job as FilterJob, Opened},
            matcher::Job as MatcherJob,
        },
    },
    error::{CallError, Error, OrderError, Result},
    history::{self, History},
    kept::KeptFiles,
    lanes::{self, Lanes},
    metrics::Metrics,
    points::{Answering, Points},
    pool::Surroundings,
    records::Record,
    shadow::{FilterSample, MatcherSample},
    sources::{Pantry, Sources},
    status::{Change, Status},
    text::one_line,
    trust::Trust,
    types::{
        bootstrap,
        events::{self, OpenError},
        matcher, probe,
    },
    views::{OpenViews, View},
};

/// Changes that a slow follower may be behind.
const CHANGES_KEPT: usize = 256;
/// Orders that may wait.
const ORDERS: usize = 16;
/// Versions that may wait to be taken out of service: one for each plugin there can be.
const ALARMS: usize = 256;

impl Config {
    /// Admits what is in the directory, then watches it. A component that is refused is reported, not fatal; a directory that cannot be
    /// read is.
    pub async fn start(self, registry: &mut Registry, token: CancellationToken) -> Result<Plugins> {
        let metrics = Metrics::register(registry);
        let config = Arc::new(self);
        let trust = Arc::new(Trust::new(&config.signatures)?);
        let private = config.private.clone();
        let (cache, kept, pantry) = lanes::aside({
            let stats = metrics.cache();
            let compilers = Compilers::new(config.compile_timeout, Haste::None);
            move || {
                (
                    Cache::open(private.as_deref(), compilers, stats),
                    KeptFiles::open(private.as_deref()),
                    Pantry::open(private.as_deref()),
                )
            }
        })
        .await
        .map_err(|_| Error::Broke)?;
        let registries = config.registries.clone();
        let reserved = config.reserved.clone();
        let sources =
            Sources::open(registries, reserved, pantry, Arc::clone(&trust), metrics.clone()).await?;
        let history = History::load(config.store.clone(), &config.prefix).await;
        let history = Arc::new(history);
        let around = Surroundings {
            engine: Engine::new(config.instances)?,
            tracker: TaskTracker::new(),
            token: token.child_token(),
            lanes: Lanes::new().map_err(Error::Thread)?,
        };
        let (changes, _) = broadcast::channel(CHANGES_KEPT);
        let (orders, asked) = mpsc::channel(ORDERS);
        let (alarms, raised) = mpsc::channel(ALARMS);
        let desk = Desk {
            around: around.clone(),
            config: Arc::clone(&config),
            cache,
            trust,
        };
        let returns_desk = Desk {
            cache: desk
                .cache
                .with(Compilers::new(config.compile_timeout, Haste::Some)),
            ..desk.clone()
        };
        let parts = Parts {
            config: Arc::clone(&config),
            desk,
            returns_desk,
            sources: sources.clone(),
            metrics: metrics.clone(),
            changes: changes.clone(),
            kept,
            history: Arc::clone(&history),
            alarms,
        };
        let directory = Directory::open(parts).await?;
        let inner = Inner {
            points: Arc::new(Points {
                config,
                table: Arc::clone(directory.table()),
                token: around.token.clone(),
            }),
            metrics,
            sources: sources.clone(),
            changes,
            orders,
            history,
            views: Mutex::default(),
            tracker: around.tracker.clone(),
            next_view: AtomicU64::new(1),
        };
        around.tracker.spawn(sources.run(around.token.clone()));
        // What is admitted enters guests too.
        around.lanes.spawn(&around.tracker, directory.run(asked, raised));
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
    sources: Sources,
    changes: broadcast::Sender<Change>,
    orders: mpsc::Sender<Order>,
    history: Arc<History>,
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
        let table = self.0.points.table.load();
        table.status(&self.0.metrics, &self.0.sources)
    }

    /// What happens from now on. A follower that falls far behind is told how many changes it missed.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.0.changes.subscribe()
    }

    /// Looks at the directory now; returns what this changed when all of it was admitted or refused. Registries are asked for tags again, and
    /// nothing waits for them.
    pub async fn rescan(&self) -> Vec<Change> {
        let (answer, changes) = oneshot::channel();
        if self.0.orders.send(Order::Rescan(answer)).await.is_err() {
            return Vec::new();
        }
        changes.await.unwrap_or_default()
    }

    /// What happened to a plugin, newest first, also to one that is gone; and where that is written down.
    pub fn history(&self, name: &str) -> (Vec<Record>, history::Kept) {
        (self.0.history.of(name), self.0.history.kept())
    }

    /// Has the version of an earlier record serve; without one, the newest that is another than the version that serves. What is in the
    /// directory stays aside until it changes, also over a restart where records are stored. `by`: who asks, for the record.
    pub async fn rollback(&self, name: &str, record: Option<u64>, by: &str) -> Result<Change, OrderError> {
        let (answer, done) = oneshot::channel();
        let order = Order::Rollback {
            name: name.to_owned(),
            record,
            by: one_line(by),
            answer,
        };
        self.0.orders.send(order).await.map_err(|_| OrderError::Stopped)?;
        done.await.unwrap_or(Err(OrderError::Stopped))
    }

    /// Has the version that answers beside the one that serves take its place, whatever its answers were. `by`: who asks, for the record.
    pub async fn promote(&self, name: &str, by: &str) -> Result<Change, OrderError> {
        let (answer, done) = oneshot::channel();
        let order = Order::Promote {
            name: name.to_owned(),
            by: one_line(by),
            answer,
        };
        self.0.orders.send(order).await.map_err(|_| OrderError::Stopped)?;
        done.await.unwrap_or(Err(OrderError::Stopped))
    }

    /// An empty agent set. `home_region` is the master's own.
    pub fn agent_set(&self, home_region: Option<String>) -> AgentSet {
        AgentSet::new(Arc::clone(&self.0.points), home_region)
    }

    /// What is wrong with these constraints. Empty: nothing.
    pub async fn validate_constraints(
        &self,
        constraints: &[matcher::Constraint],
    ) -> Result<Vec<matcher::ConstraintError>, CallError> {
        let Answering::Version(pair) = self.0.points.matcher()? else {
            return Ok(Vec::new());
        };
        let version = &pair.version;
        let _in_flight = version.meta.enter()?;
        let constraints = constraints.to_vec();
        let sampled = pair.sampled().map(|shadow| (shadow, constraints.clone()));
        let errors = version
            .ask(&mut version.least_loaded(), |reply| MatcherJob::Validate {
                constraints,
                reply,
            })
            .await?;
        if let Some((shadow, constraints)) = sampled {
            shadow.offer(MatcherSample::Validate(constraints, errors.clone()));
        }
        Ok(errors)
    }

    /// Makes a query ready. Views of equal queries share one.
    pub async fn open_view(&self, query: events::Query) -> Result<View, OpenError> {
        let found = self.0.points.filter()?;
        let opened = self.opened(query);
        let Answering::Version(pair) = found else {
            return Ok(View::new(Arc::clone(&self.0.points), opened));
        };
        let version = &pair.version;
        let _in_flight = version.meta.enter()?;
        let view = Arc::clone(&opened);
        let answer = version
            .ask(&mut version.near(opened.id as usize), |reply| FilterJob::Open {
                view,
                reply,
            })
            .await?;
        if let Some(shadow) = pair.sampled() {
            shadow.offer(FilterSample {
                view: Arc::clone(&opened),
                events: None,
                serving: answer.clone().map(|()| Vec::new()),
            });
        }
        answer.map_err(OpenError::Refused)?;
        Ok(View::new(Arc::clone(&self.0.points), opened))
    }

    /// What a container runs first.
    pub async fn prepare(
        &self,
        context: bootstrap::Context,
        script: Vec<u8>,
    ) -> Result<bootstrap::Prepared, bootstrap::PrepareError> {
        let Answering::Version(pair) = self.0.points.bootstrap()? else {
            return Ok(bootstrap::Prepared {
                script,
                environment: context.environment,
                arguments: context.arguments,
            });
        };
        let version = &pair.version;
        let _in_flight = version.meta.enter()?;
        let sampled = pair
            .sampled()
            .map(|shadow| (shadow, context.clone(), script.clone()));
        let job = |reply| BootstrapJob {
            context,
            script,
            reply,
        };
        let answer = version.ask(&mut version.least_loaded(), job).await?;
        if let Some((shadow, context, script)) = sampled {
            shadow.offer((context, script, answer.clone()));
        }
        Ok(answer?)
    }

    /// The name of the plugin that looks.
    pub fn prober<'a>(&'a self, kind: &'a probe::Kind) -> &'a str {
        self.0.points.prober_of(kind).1
    }

    /// One look at one task. `runner` runs commands for components that were granted that.
    pub async fn probe(
        &self,
        kind: probe::Kind,
        request: probe::Request,
        runner: Option<Arc<dyn probe::Runner>>,
    ) -> Result<probe::Outcome, probe::Failure> {
        let pair = self
            .0
            .points
            .prober(&kind)
            .map_err(|error| attempt::failure(&error))?;
        let points = &self.0.points;
        attempt::look(&pair, request, runner, &points.config.reserved, &points.token).await
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
