//! Scripted replacements for tests: the test determines what the scheduler does and what the
//! components return.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_framework::{Abdication, FrameworkService, LeaderTerm, ServiceHandle};
use transom_plugin_host::events::{Decision, Event as BusEvent, OpenError, Query};
use transom_plugin_host::matcher::{Constraint, ConstraintError};
use transom_plugin_host::probe::{Failure, Kind, Outcome, Reason, Request, Runner};
use transom_plugin_host::{CallError, Change};
use transom_scheduler::{AgentLocation, Phase, TaskRecord};
use transom_store::Leadership;
use transom_testkit::{HeldStore, ScriptedScheduler, WAIT_TIMEOUT, wait_for};

use crate::core::term::{Dependencies, Metrics};
use crate::ids::SpecId;
use crate::model::pod::{Pod, read_pod};
use crate::model::{App, DefinitionSettings, read};
use crate::policies::{Component, Policies, View};
use crate::settings::Feature;
use crate::time::Moment;
use crate::{Config, Runner as AppsRunner};

/// Settings with every feature.
pub(crate) fn settings() -> DefinitionSettings {
    DefinitionSettings {
        role: "*".to_owned(),
        enforces_role: false,
        other_roles: Vec::new(),
        features: [Feature::ExternalVolumes, Feature::GpuResources, Feature::Secrets].into(),
        default_network_name: None,
    }
}

/// A canonical definition from a client's document.
pub(crate) fn app(body: &Value) -> App {
    let mut update = read(body).unwrap_or_else(|invalid| panic!("{body}: {invalid:?}"));
    let id = update.id.clone().unwrap_or_else(|| SpecId::parse("/a").unwrap());
    let app = update.apply(id, None, &settings(), Moment::now());
    assert!(update.broken.is_empty(), "{:?}", update.broken);
    app
}

/// A canonical definition of a pod from a client's document.
pub(crate) fn pod(body: &Value) -> Pod {
    let input = read_pod(body).unwrap_or_else(|invalid| panic!("{body}: {invalid:?}"));
    assert!(input.broken.is_empty(), "{:?}", input.broken);
    let id = input.id.clone().unwrap_or_else(|| SpecId::parse("/p").unwrap());
    input.pod(id, &settings(), Moment::now())
}

/// A task that runs on [`agent`], without ports.
pub(crate) fn record(id: TaskId) -> TaskRecord {
    let now = jiff::Timestamp::UNIX_EPOCH;
    TaskRecord {
        id,
        run_spec: "/a".to_owned(),
        version: "2018-01-01T00:00:00.000Z".to_owned(),
        group: None,
        agent: Arc::new(agent()),
        agent_attributes: Arc::default(),
        host_ports: Vec::new(),
        phase: Phase::Launched,
        state: TaskState::Running,
        status: None,
        intended_at: now,
        staged_at: None,
        started_at: None,
        updated_at: now,
        killing: false,
        kill_grace: None,
        restarting: false,
        metadata: Arc::default(),
    }
}

/// A task on the host `h1` with these host ports, whose container has these networks.
pub(crate) fn networked_record(host_ports: &[u16], networks: &Value) -> TaskRecord {
    let status = json!({
        "task_id": {"value": "t"}, "state": "TASK_RUNNING", "container_status": {"network_infos": networks},
    });
    TaskRecord {
        agent: Arc::new(AgentLocation {
            hostname: "h1".to_owned(),
            ..agent()
        }),
        host_ports: host_ports.to_vec(),
        status: Some(serde_json::from_value(status).unwrap()),
        ..record("t".into())
    }
}

/// Components with scripted answers.
#[derive(Debug)]
pub(crate) struct Components {
    /// The errors in the result of each validation of constraints.
    pub(crate) conditions: Mutex<Vec<ConstraintError>>,
    /// Whether all components are missing.
    pub(crate) missing: AtomicBool,
    /// The result of all further checks.
    pub(crate) probe: Mutex<Result<Outcome, Failure>>,
    /// The last check request.
    pub(crate) last_probe: Mutex<Option<(Kind, Request)>>,
    pub(crate) views: AtomicUsize,
    pub(crate) batches: AtomicUsize,
    /// The number of events that the filter has decided.
    pub(crate) decided: AtomicUsize,
    /// The filter traps on batches with an event whose body contains this text.
    pub(crate) traps_on: Mutex<Option<String>>,
    /// The filter traps on every batch.
    pub(crate) broken: AtomicBool,
    /// The filter does not answer until this is reset.
    pub(crate) stuck: AtomicBool,
    changes: broadcast::Sender<Change>,
    weak_self: std::sync::Weak<Self>,
}

impl Components {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new_cyclic(|weak_self| Self {
            conditions: Mutex::default(),
            missing: AtomicBool::new(false),
            probe: Mutex::new(Err(Failure {
                reason: Reason::Plugin,
                message: "nothing scripted".to_owned(),
            })),
            last_probe: Mutex::default(),
            views: AtomicUsize::new(0),
            batches: AtomicUsize::new(0),
            decided: AtomicUsize::new(0),
            traps_on: Mutex::default(),
            broken: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            changes: broadcast::channel(16).0,
            weak_self: weak_self.clone(),
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
            return Err(OpenError::Rejected("the filter makes no sense".to_owned()));
        }
        self.views.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(ScriptedView {
            query,
            components: self.weak_self.upgrade().unwrap(),
        }))
    }

    async fn probe(
        &self,
        kind: Kind,
        request: Request,
        _runner: Option<Arc<dyn Runner>>,
    ) -> Result<Outcome, Failure> {
        *self.last_probe.lock().unwrap() = Some((kind, request));
        self.probe.lock().unwrap().clone()
    }

    fn prober(&self, _kind: &Kind) -> String {
        "prober".to_owned()
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn components(&self) -> Vec<Component> {
        vec![Component {
            name: "attributes".to_owned(),
            world: "matcher".to_owned(),
            version: "0.1.0".to_owned(),
            digest: Some("sha256:00".to_owned()),
            summary: None,
        }]
    }
}

/// Passes the requested kinds of events; if none is requested, all but the opt-in ones. The filter
/// `replace` replaces every event.
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
            let is_requested = if types.is_empty() {
                !["check_result_changed_event", "event_too_large_event"].contains(&event.kind.as_str())
            } else {
                types.contains(&event.kind)
            };
            match self.query.expression.as_deref() {
                Some("replace") => Decision::Replace(r#"{"replaced":true}"#.to_owned()),
                _ if is_requested => Decision::Pass,
                _ => Decision::Drop,
            }
        };
        self.components.decided.fetch_add(events.len(), Ordering::SeqCst);
        Ok(events.iter().map(decide).collect())
    }
}

/// The only agent.
pub(crate) fn agent() -> AgentLocation {
    AgentLocation {
        id: "a-S0".into(),
        hostname: "127.0.0.1".to_owned(),
        region: Some("r1".to_owned()),
        zone: None,
        endpoint: None,
    }
}

/// A service under test.
pub(crate) struct World {
    pub(crate) apps: ServiceHandle,
    pub(crate) scheduler: Arc<ScriptedScheduler>,
    pub(crate) components: Arc<Components>,
    pub(crate) store: Arc<HeldStore>,
    config: Config,
    registry: Registry,
    token: CancellationToken,
    abdication: Abdication,
    leading: JoinHandle<AppsRunner>,
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(Config::default()).await
    }

    pub(crate) async fn start_with(config: impl Into<Config>) -> Self {
        let scheduler = ScriptedScheduler::new(agent());
        scheduler.set_immediate_launches(true);
        scheduler.set_immediate_kills(true);
        let dir = tempfile::tempdir().unwrap();
        Self::with(config, scheduler, Components::new(), dir).await
    }

    pub(crate) async fn with(
        config: impl Into<Config>,
        scheduler: Arc<ScriptedScheduler>,
        components: Arc<Components>,
        dir: tempfile::TempDir,
    ) -> Self {
        let token = CancellationToken::new();
        let events = scheduler.attach();
        let policies: Arc<dyn Policies> = components.clone();
        let mut config: Config = config.into();
        config.port.port = 0;
        config.port.hostname = "localhost".to_owned();
        let mut registry = Registry::default();
        let dependencies = Dependencies {
            placement: None,
            policies,
            agents: None,
            reserved: transom_registry::network::Reserved::default(),
            metrics: Metrics::register(&mut registry),
            snapshot: crate::core::term::counted_snapshot(&mut registry),
        };
        let inner = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let store = HeldStore::new(inner);
        let (_, standing) = watch::channel(Leadership::Leader);
        let port = config.bind().await.unwrap();
        let started = crate::start(
            config.clone(),
            port,
            store.clone(),
            dependencies,
            standing,
            token.clone(),
        );
        let (apps, mut runner) = started.await.unwrap();
        let abdication = Abdication::default();
        let term = LeaderTerm {
            scheduler: scheduler.clone(),
            events,
            lease: None,
            store: store.clone(),
            token: token.clone(),
            abdication: abdication.clone(),
        };
        let leading = tokio::spawn(async move {
            runner.lead(term).await.unwrap();
            runner
        });
        wait_for("the job leads", async || apps.framework().leading).await;
        Self {
            apps,
            scheduler,
            components,
            store,
            config,
            registry,
            token,
            abdication,
            leading,
            dir,
        }
    }

    /// Whether a client asked the leader to abdicate.
    pub(crate) fn abdicated(&self) -> bool {
        self.abdication.is_requested()
    }

    /// All metrics.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// The number of events published on the bus.
    pub(crate) fn published(&self) -> u64 {
        let text = self.metrics();
        let counts = text.lines().filter_map(|line| {
            let kind = line.strip_prefix("transom_apps_events_total{kind=")?;
            kind.rsplit_once(' ')?.1.parse::<u64>().ok()
        });
        counts.sum()
    }

    /// Stops the service.
    pub(crate) async fn stop(self) -> (Arc<ScriptedScheduler>, Arc<Components>, tempfile::TempDir) {
        self.token.cancel();
        tokio::time::timeout(WAIT_TIMEOUT, self.apps.stopped())
            .await
            .unwrap();
        tokio::time::timeout(WAIT_TIMEOUT, self.leading)
            .await
            .unwrap()
            .unwrap();
        (self.scheduler, self.components, self.dir)
    }

    /// Stops the service and starts it again on the same store and scheduler.
    pub(crate) async fn restart(self) -> Self {
        self.restart_after(|_| ()).await
    }

    /// Does the same, and changes the scheduler while no service runs.
    pub(crate) async fn restart_after(self, change: impl FnOnce(&ScriptedScheduler)) -> Self {
        let config = self.config.clone();
        let (scheduler, components, dir) = self.stop().await;
        change(&scheduler);
        Self::with(config, scheduler, components, dir).await
    }
}

/// The number of operations whose growth a test observes, such as lookups.
#[cfg(test)]
pub(crate) mod operations {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
        static LARGEST_TURN: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn count() {
        COUNT.set(COUNT.get() + 1);
    }

    pub(crate) fn take() -> usize {
        COUNT.take()
    }

    /// Records how many apps, pods and instances a turn reconciles.
    pub(crate) fn note_turn(actions: usize) {
        LARGEST_TURN.set(LARGEST_TURN.get().max(actions));
    }

    pub(crate) fn take_largest_turn() -> usize {
        LARGEST_TURN.take()
    }
}
