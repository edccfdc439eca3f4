//! Scripted counterparts for tests: the test decides what the scheduler does and what the
//! components return.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use serde_json::{Value, json};

use crate::ids::AppId;
use crate::model::{App, read};
use crate::time::Moment;

/// A canonical definition from a client's document.
pub(crate) fn app(body: &Value) -> App {
    let mut update = read(body).unwrap_or_else(|invalid| panic!("{body}: {invalid:?}"));
    let id = update.id.clone().unwrap_or_else(|| AppId::parse("/a").unwrap());
    let app = update.apply(id, None, "*", Moment::now());
    assert!(update.broken.is_empty(), "{:?}", update.broken);
    app
}

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_cluster::TaskId;
use transom_cluster::v1::{TaskState, TaskStatus};
use transom_framework::{FrameworkService, LeaderTerm, ServiceHandle};
use transom_plugin_host::events::{Decision, Event as BusEvent, OpenError, Query};
use transom_plugin_host::matcher::{Constraint, ConstraintError};
use transom_plugin_host::probe::{Failure, Kind, Outcome, Reason, Request, Runner};
use transom_plugin_host::{CallError, Change};
use transom_scheduler::{
    AgentLocation, Event, Events, PendingTask, Phase, SchedulerApi, SubscriptionStatus, TaskRecord,
    TaskRequest, Tasks,
};
use transom_store::{Batch, Entry, Leadership, Store};

use crate::core::term::{Dependencies, Metrics};
use crate::seams::{Policies, View};
use crate::{Config, Runner as AppsRunner};

/// The limit of every wait in a test.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Events that a test may send without being read.
const MAX_EVENTS: usize = 65_536;

/// A scheduler that launches requested tasks and kills released ones immediately, unless configured
/// otherwise.
#[derive(Debug)]
pub(crate) struct Cluster {
    inner: Mutex<Inner>,
    events: Mutex<mpsc::Sender<Event>>,
    /// Whether submitted tasks run without a call of the test.
    pub(crate) obliging: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    wanted: BTreeMap<TaskId, TaskRequest>,
    tasks: Tasks,
    ports: u16,
}

impl Cluster {
    pub(crate) fn new() -> (Arc<Self>, Events) {
        let (events, receiver) = mpsc::channel(MAX_EVENTS);
        let cluster = Self {
            inner: Mutex::default(),
            events: Mutex::new(events),
            obliging: AtomicBool::new(true),
        };
        (Arc::new(cluster), receiver.into())
    }

    /// Connects a new service, which receives the events from now on.
    pub(crate) fn reattach(&self) -> Events {
        let (events, receiver) = mpsc::channel(MAX_EVENTS);
        *self.events.lock().unwrap() = events;
        receiver.into()
    }

    pub(crate) fn send(&self, event: Event) {
        // The service may be down.
        let _ = self.events.lock().unwrap().try_send(event);
    }

    /// The requested tasks that are not launched yet.
    pub(crate) fn wanted(&self) -> Vec<TaskRequest> {
        self.inner.lock().unwrap().wanted.values().cloned().collect()
    }

    /// Launches all requested tasks.
    pub(crate) fn launch(&self) {
        for wanted in self.wanted() {
            let record = {
                let mut inner = self.inner.lock().unwrap();
                inner.wanted.remove(&wanted.id);
                let first = 31_000 + inner.ports;
                inner.ports += wanted.spec.ports.len() as u16;
                let record = record(&wanted, first);
                inner.tasks.insert(wanted.id.clone(), Arc::new(record.clone()));
                record
            };
            self.send(Event::Launched(Arc::new(record)));
            self.update(&wanted.id, TaskState::Running, None);
        }
    }

    /// Sends a status update of a task.
    pub(crate) fn update(&self, task: &TaskId, state: TaskState, message: Option<&str>) {
        let record = {
            let mut inner = self.inner.lock().unwrap();
            let Some(known) = inner.tasks.get(task) else {
                return;
            };
            let mut record = known.as_ref().clone();
            record.status = Some(TaskStatus {
                task_id: task.clone(),
                state: state.clone(),
                message: message.map(str::to_owned),
                agent_id: Some(record.agent.id.clone()),
                ..TaskStatus::default()
            });
            record.phase = if state.is_terminal() {
                Phase::Terminal
            } else {
                Phase::Launched
            };
            if state == TaskState::Running {
                record.started_at = Some(jiff::Timestamp::now());
            }
            record.state = state;
            let record = Arc::new(record);
            inner.tasks.insert(task.clone(), Arc::clone(&record));
            record
        };
        self.send(Event::Updated(record));
    }

    /// Ids of the running tasks.
    pub(crate) fn running(&self) -> Vec<TaskId> {
        let inner = self.inner.lock().unwrap();
        inner
            .tasks
            .values()
            .filter(|record| record.state == TaskState::Running)
            .map(|record| record.id.clone())
            .collect()
    }
}

fn record(wanted: &TaskRequest, first_port: u16) -> TaskRecord {
    let agent = AgentLocation {
        id: "a-S0".into(),
        hostname: "127.0.0.1".to_owned(),
        region: Some("r1".to_owned()),
        zone: None,
        endpoint: None,
    };
    let now = jiff::Timestamp::now();
    TaskRecord {
        id: wanted.id.clone(),
        run_spec: wanted.spec.id.clone(),
        version: wanted.spec.version.clone(),
        group: None,
        agent: Arc::new(agent),
        agent_attributes: Arc::default(),
        host_ports: (0..wanted.spec.ports.len() as u16)
            .map(|index| first_port + index)
            .collect(),
        phase: Phase::Launched,
        state: TaskState::Staging,
        status: None,
        intended_at: now,
        staged_at: Some(now),
        started_at: None,
        updated_at: now,
        killing: false,
        kill_grace: None,
        metadata: Arc::default(),
    }
}

impl SchedulerApi for Cluster {
    fn submit(&self, tasks: Vec<TaskRequest>) {
        {
            let mut inner = self.inner.lock().unwrap();
            inner
                .wanted
                .extend(tasks.into_iter().map(|wanted| (wanted.id.clone(), wanted)));
        }
        if self.obliging.load(Ordering::SeqCst) {
            self.launch();
        }
    }

    fn kill(&self, tasks: Vec<TaskId>, _grace: Option<Duration>) {
        for task in tasks {
            if self.inner.lock().unwrap().wanted.remove(&task).is_some() {
                self.send(Event::NeverLaunched(task));
            } else {
                self.update(&task, TaskState::Killed, None);
            }
        }
    }

    fn purge(&self, tasks: Vec<TaskId>) {
        let mut inner = self.inner.lock().unwrap();
        for task in tasks {
            assert!(
                inner.tasks.get(&task).is_none_or(|record| record.is_terminal()),
                "{task} is not terminal"
            );
            inner.tasks.remove(&task);
        }
    }

    fn tasks(&self) -> Arc<Tasks> {
        Arc::new(self.inner.lock().unwrap().tasks.clone())
    }

    fn pending(&self) -> Vec<PendingTask> {
        let since = jiff::Timestamp::now();
        let waiting = |wanted: TaskRequest| PendingTask {
            task: wanted.id,
            run_spec: wanted.spec.id.clone(),
            version: wanted.spec.version.clone(),
            since,
            not_before: wanted.not_before,
            reasons: Arc::default(),
        };
        self.wanted().into_iter().map(waiting).collect()
    }

    fn subscription(&self) -> SubscriptionStatus {
        let since = jiff::Timestamp::now();
        SubscriptionStatus {
            framework_id: Some("fw-1".into()),
            connected: true,
            master: Some("127.0.0.1:5050".to_owned()),
            since,
        }
    }
}

/// Components with scripted answers.
#[derive(Debug)]
pub(crate) struct Components {
    /// The errors that constraints are answered with.
    pub(crate) conditions: Mutex<Vec<ConstraintError>>,
    /// Whether all components are missing.
    pub(crate) missing: AtomicBool,
    /// The result of the next checks.
    pub(crate) probe: Mutex<Result<Outcome, Failure>>,
    /// The last check request.
    pub(crate) asked: Mutex<Option<(Kind, Request)>>,
    pub(crate) views: AtomicUsize,
    pub(crate) batches: AtomicUsize,
    /// The filter traps on batches with an event whose body contains this text.
    pub(crate) traps_on: Mutex<Option<String>>,
    /// The filter traps on every batch.
    pub(crate) broken: AtomicBool,
    /// The filter does not answer until this is reset.
    pub(crate) stuck: AtomicBool,
    changes: broadcast::Sender<Change>,
    this: std::sync::Weak<Self>,
}

impl Components {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            conditions: Mutex::default(),
            missing: AtomicBool::new(false),
            probe: Mutex::new(Err(Failure {
                reason: Reason::Plugin,
                message: "nothing scripted".to_owned(),
            })),
            asked: Mutex::default(),
            views: AtomicUsize::new(0),
            batches: AtomicUsize::new(0),
            traps_on: Mutex::default(),
            broken: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            changes: broadcast::channel(16).0,
            this: this.clone(),
        })
    }

    /// Removes all components.
    pub(crate) fn remove(&self) {
        self.missing.store(true, Ordering::SeqCst);
        let _ = self.changes.send(Change::Removed {
            name: "events".to_owned(),
        });
    }

    /// Sends a plugin change.
    pub(crate) fn changed(&self, change: Change) {
        let _ = self.changes.send(change);
    }

    fn present(&self, point: &'static str) -> Result<(), CallError> {
        if self.missing.load(Ordering::SeqCst) {
            return Err(CallError::Missing {
                point,
                name: point.to_owned(),
                dir: "plugins".into(),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Policies for Components {
    async fn validate_constraints(
        &self,
        _conditions: &[Constraint],
    ) -> Result<Vec<ConstraintError>, CallError> {
        self.present("matcher")?;
        Ok(self.conditions.lock().unwrap().clone())
    }

    async fn open_view(&self, query: Query) -> Result<Arc<dyn View>, OpenError> {
        self.present("filter")?;
        if query.expression.as_deref() == Some("bad") {
            return Err(OpenError::Refused("the filter makes no sense".to_owned()));
        }
        self.views.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(ScriptedView {
            query,
            components: self.this.upgrade().unwrap(),
        }))
    }

    async fn probe(
        &self,
        kind: Kind,
        request: Request,
        _runner: Option<Arc<dyn Runner>>,
    ) -> Result<Outcome, Failure> {
        *self.asked.lock().unwrap() = Some((kind, request));
        self.probe.lock().unwrap().clone()
    }

    fn prober(&self, _kind: &Kind) -> String {
        "prober".to_owned()
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }
}

/// Passes the requested kinds, or without any all but the opt-in ones. The filter `replace`
/// replaces every event.
#[derive(Debug)]
struct ScriptedView {
    query: Query,
    components: Arc<Components>,
}

#[async_trait]
impl View for ScriptedView {
    async fn decide(&self, events: &[BusEvent]) -> Result<Vec<Decision>, OpenError> {
        self.components.present("filter")?;
        self.components.batches.fetch_add(1, Ordering::SeqCst);
        while self.components.stuck.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let harmful = {
            let traps_on = self.components.traps_on.lock().unwrap();
            let text = traps_on.as_deref();
            text.is_some_and(|text| events.iter().any(|event| event.body.contains(text)))
        };
        if harmful || self.components.broken.load(Ordering::SeqCst) {
            let name = "events".to_owned();
            let message = "wasm `unreachable` instruction executed".to_owned();
            return Err(OpenError::Call(CallError::Trapped { name, message }));
        }
        let decide = |event: &BusEvent| {
            let types = &self.query.event_types;
            let asked = if types.is_empty() {
                !["check_result_changed_event", "event_too_large_event"].contains(&event.kind.as_str())
            } else {
                types.contains(&event.kind)
            };
            match self.query.expression.as_deref() {
                Some("replace") => Decision::Replace(r#"{"replaced":true}"#.to_owned()),
                Some("grow") if event.kind == "status_update_event" => {
                    Decision::Replace(json!({"grown": "x".repeat(2 << 20)}).to_string())
                }
                _ if asked => Decision::Pass,
                _ => Decision::Drop,
            }
        };
        Ok(events.iter().map(decide).collect())
    }
}

/// A store that does not commit while the test holds it: as a stuck disk does, it commits
/// everything later, in order, even if the caller no longer waits.
#[derive(Debug)]
pub(crate) struct HeldStore {
    inner: Arc<dyn Store>,
    /// Commits that still pass; `None`: all.
    passing: watch::Sender<Option<usize>>,
    waiting: watch::Sender<usize>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl HeldStore {
    fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            passing: watch::Sender::new(None),
            waiting: watch::Sender::new(0),
            turn: Arc::default(),
        })
    }

    /// Holds all commits after so many.
    pub(crate) fn hold_after(&self, passing: usize) {
        self.waiting.send_replace(0);
        self.passing.send_replace(Some(passing));
    }

    pub(crate) fn release(&self) {
        self.passing.send_replace(None);
    }

    /// Waits until a commit is held.
    pub(crate) async fn holding(&self) {
        let mut waiting = self.waiting.subscribe();
        let held = waiting.wait_for(|waiting| *waiting > 0);
        tokio::time::timeout(TEST_TIMEOUT, held).await.unwrap().unwrap();
    }

    /// Whether one more commit passes now.
    fn pass(&self) -> bool {
        let mut passes = true;
        self.passing.send_modify(|passing| match passing {
            Some(0) => passes = false,
            Some(left) => *left -= 1,
            None => {}
        });
        passes
    }
}

#[async_trait]
impl Store for HeldStore {
    async fn get(&self, key: &str) -> transom_store::Result<Option<Entry>> {
        self.inner.get(key).await
    }

    async fn scan(&self, prefix: &str) -> transom_store::Result<Vec<Entry>> {
        self.inner.scan(prefix).await
    }

    async fn commit(&self, batch: Batch) -> transom_store::Result<Vec<u64>> {
        let passes = self.pass();
        let (inner, turn) = (Arc::clone(&self.inner), Arc::clone(&self.turn));
        let mut passing = self.passing.subscribe();
        if !passes {
            self.waiting.send_modify(|waiting| *waiting += 1);
        }
        let commit = tokio::spawn(async move {
            let _turn = turn.lock().await;
            if !passes {
                passing.wait_for(Option::is_none).await.unwrap();
            }
            inner.commit(batch).await
        });
        commit.await.unwrap()
    }

    async fn watch(&self, prefix: &str) -> transom_store::Result<transom_store::Watch> {
        self.inner.watch(prefix).await
    }
}

/// A service under test.
pub(crate) struct World {
    pub(crate) apps: ServiceHandle,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) components: Arc<Components>,
    pub(crate) store: Arc<HeldStore>,
    registry: Registry,
    token: CancellationToken,
    leading: JoinHandle<AppsRunner>,
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with_store_timeout(transom_store::typed::TIMEOUT).await
    }

    pub(crate) async fn start_with_store_timeout(timeout: Duration) -> Self {
        let (cluster, events) = Cluster::new();
        let dir = tempfile::tempdir().unwrap();
        Self::with(cluster, events, Components::new(), dir, timeout).await
    }

    async fn with(
        cluster: Arc<Cluster>,
        events: Events,
        components: Arc<Components>,
        dir: tempfile::TempDir,
        store_timeout: Duration,
    ) -> Self {
        let token = CancellationToken::new();
        let scheduler: Arc<dyn SchedulerApi> = cluster.clone();
        let policies: Arc<dyn Policies> = components.clone();
        let mut config = Config {
            store_timeout,
            ..Config::default()
        };
        config.port.port = 0;
        let mut registry = Registry::default();
        let dependencies = Dependencies {
            policies,
            agents: None,
            metrics: Metrics::register(&mut registry),
        };
        let inner = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let store = HeldStore::new(inner);
        let (_, standing) = watch::channel(Leadership::Leader);
        let port = config.bind().await.unwrap();
        let started = crate::start(config, port, store.clone(), dependencies, standing, token.clone());
        let (apps, mut runner) = started.await.unwrap();
        let term = LeaderTerm {
            scheduler,
            events,
            store: store.clone(),
            token: token.clone(),
        };
        let leading = tokio::spawn(async move {
            runner.lead(term).await.unwrap();
            runner
        });
        until("the job leads", async || apps.framework().leading).await;
        Self {
            apps,
            cluster,
            components,
            store,
            registry,
            token,
            leading,
            dir,
        }
    }

    /// The number of events published on the bus.
    pub(crate) fn published(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("transom_apps_events_total "));
        line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }

    /// Stops the service.
    pub(crate) async fn stop(self) -> (Arc<Cluster>, Arc<Components>, tempfile::TempDir) {
        self.token.cancel();
        tokio::time::timeout(TEST_TIMEOUT, self.apps.stopped())
            .await
            .unwrap();
        tokio::time::timeout(TEST_TIMEOUT, self.leading)
            .await
            .unwrap()
            .unwrap();
        (self.cluster, self.components, self.dir)
    }

    /// Stops the service and starts it again on the same store and cluster.
    pub(crate) async fn restart(self) -> Self {
        let (cluster, components, dir) = self.stop().await;
        let events = cluster.reattach();
        Self::with(cluster, events, components, dir, transom_store::typed::TIMEOUT).await
    }
}

/// Waits until `condition` holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.is_ok(),
        "it never came true that {what}"
    );
}
