//! A scheduler with a scripted master, store and matcher.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, TaskId, v1};
use transom_common::Backoff;
use transom_plugin_host::CallError;
use transom_plugin_host::explain::MatcherExplanation;
use transom_plugin_host::matcher::{Agent, Candidate, Task, Verdict};
use transom_store::{Batch, Entry, Store};

use super::master::Master;
use crate::actor::{Dependencies, Timeouts};
use crate::matching::matcher::{Matcher, MatcherHost};
use crate::{
    Event, Events, MaintenanceMode, Metrics, PendingExplanation, RunSpec, Scheduler, SchedulerApi,
    TaskRecord, testing,
};

/// A scheduler and its dependencies. Everything that the test does not stop itself ends with the
/// test's runtime.
pub(super) struct Rig {
    pub(super) master: Master,
    pub(super) store: Arc<FlakyStore>,
    pub(super) script: Arc<MatcherScript>,
    pub(super) scheduler: Scheduler,
    pub(super) events: Events,
    pub(super) registry: Registry,
    pub(super) token: CancellationToken,
    dir: Arc<tempfile::TempDir>,
}

/// The script of the matcher.
#[derive(Default)]
pub(super) struct MatcherScript {
    pub(super) is_missing: AtomicBool,
    /// Duration of each call of the matcher, in milliseconds.
    pub(super) call_duration_ms: AtomicU64,
    /// Run specs with faults of the matcher.
    pub(super) faults: Mutex<BTreeMap<String, Fault>>,
    /// A run spec whose calls wait for `released`.
    pub(super) held: Mutex<Option<String>>,
    pub(super) released: Notify,
    /// The run specs of the calls, in their order.
    pub(super) asked: Mutex<Vec<String>>,
    /// Run specs for which the kill selection fails.
    pub(super) fails_kills_of: Mutex<BTreeSet<String>>,
    /// Ids of agents that the matcher rejects.
    pub(super) rejected_agents: Mutex<BTreeSet<String>>,
    pub(super) changed: Notify,
    /// The task of the last call, and the agents in the agent set at that time.
    pub(super) last_call: Mutex<Option<(Task, BTreeMap<u32, Agent>)>>,
}

/// What a faulty component does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Trap,
    /// The call ends at the limit of a manifest, which the real plugin host enforces.
    Hang,
    CpuExhausted,
    OutOfMemory,
    /// A result that the plugin host rejects.
    Malformed,
    /// A result that only the scheduler can reject: an agent without an offer.
    UnknownAgent,
}

impl Fault {
    async fn result(self) -> Result<Vec<u32>, CallError> {
        let name = "scripted".to_owned();
        let limit = Duration::from_millis(300);
        Err(match self {
            Self::Trap => CallError::Trapped {
                name,
                message: "unreachable".to_owned(),
            },
            Self::Hang => {
                tokio::time::sleep(limit).await;
                CallError::TimedOut { name, limit }
            }
            Self::CpuExhausted => CallError::CpuExhausted { name, limit },
            Self::OutOfMemory => CallError::OutOfMemory {
                name,
                limit: 1,
                what: "bytes (limits.memory)",
            },
            Self::Malformed => CallError::Malformed {
                name,
                message: "9 verdicts for 1 candidate".to_owned(),
            },
            Self::UnknownAgent => return Ok(vec![u32::MAX]),
        })
    }
}

struct ScriptedMatcher {
    script: Arc<MatcherScript>,
    agent_set: BTreeMap<u32, Agent>,
}

struct ScriptedHost(Arc<MatcherScript>);

#[async_trait]
impl MatcherHost for ScriptedHost {
    fn agent_set(&self, _home_region: Option<String>) -> Box<dyn Matcher> {
        Box::new(ScriptedMatcher {
            script: Arc::clone(&self.0),
            agent_set: BTreeMap::new(),
        })
    }

    async fn changed(&mut self) {
        self.0.changed.notified().await;
    }
}

impl ScriptedMatcher {
    fn rejects(&self, candidate: Candidate) -> bool {
        self.script
            .rejected_agents
            .lock()
            .unwrap()
            .contains(&self.agent_set[&candidate.agent].id)
    }

    /// Records the call, and returns the fault of its run spec.
    fn fault_of(&self, task: &Task) -> Option<Fault> {
        self.script.asked.lock().unwrap().push(task.run_spec.clone());
        let faults = self.script.faults.lock().unwrap();
        faults.get("*").or_else(|| faults.get(&task.run_spec)).copied()
    }

    fn available(&self) -> Result<(), CallError> {
        if self.script.is_missing.load(Ordering::SeqCst) {
            return Err(CallError::Stopped);
        }
        Ok(())
    }
}

#[async_trait]
impl Matcher for ScriptedMatcher {
    fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>) {
        self.agent_set
            .extend(changed.into_iter().map(|agent| (agent.handle, agent)));
        for handle in removed {
            self.agent_set
                .remove(&handle)
                .expect("only known agents are removed");
        }
    }

    async fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Result<Vec<Verdict>, CallError> {
        self.available()?;
        if let Some(fault) = self.fault_of(task) {
            fault.result().await?;
        }
        let verdict = |candidate: &Candidate| {
            if self.rejects(*candidate) {
                Verdict::Refused(1)
            } else {
                Verdict::Fits
            }
        };
        Ok(candidates.iter().map(verdict).collect())
    }

    async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        *self.script.last_call.lock().unwrap() = Some((task.clone(), self.agent_set.clone()));
        tokio::time::sleep(Duration::from_millis(
            self.script.call_duration_ms.load(Ordering::SeqCst),
        ))
        .await;
        let is_held = self.script.held.lock().unwrap().as_ref() == Some(&task.run_spec);
        if is_held {
            self.script.released.notified().await;
        }
        self.available()?;
        if let Some(fault) = self.fault_of(task) {
            return fault.result().await;
        }
        let fit = candidates.iter().filter(|candidate| !self.rejects(**candidate));
        let capacity =
            fit.flat_map(|candidate| std::iter::repeat_n(candidate.agent, candidate.capacity as usize));
        Ok(capacity.take(count as usize).collect())
    }

    /// Selects the last instances.
    async fn select_kills(&mut self, task: &Task, count: u32) -> Result<Vec<u32>, CallError> {
        *self.script.last_call.lock().unwrap() = Some((task.clone(), self.agent_set.clone()));
        self.available()?;
        if self
            .script
            .fails_kills_of
            .lock()
            .unwrap()
            .contains(&task.run_spec)
        {
            return Err(CallError::Stopped);
        }
        let indices = (0..task.placed.len() as u32).rev();
        Ok(indices.take(count as usize).collect())
    }

    /// Reports the numbers of agents and of instances, and the run spec's id in place of its
    /// constraints.
    fn explain(&self, task: Task) -> PendingExplanation {
        PendingExplanation::new(std::future::ready(MatcherExplanation {
            constraints: vec![task.run_spec],
            agents: self.agent_set.len(),
            instances: task.instances,
            placed: task.placed.len(),
            ..MatcherExplanation::default()
        }))
    }
}

/// A store that fails on request.
#[derive(Debug)]
pub(super) struct FlakyStore {
    inner: Arc<dyn Store>,
    pub(super) down: AtomicBool,
    pub(super) rejected: Notify,
}

#[async_trait]
impl Store for FlakyStore {
    async fn get(&self, key: &str) -> transom_store::Result<Option<Entry>> {
        self.inner.get(key).await
    }

    async fn scan(&self, prefix: &str) -> transom_store::Result<Vec<Entry>> {
        self.inner.scan(prefix).await
    }

    async fn commit(&self, batch: Batch) -> transom_store::Result<Vec<u64>> {
        if self.down.load(Ordering::SeqCst) {
            self.rejected.notify_one();
            return Err(transom_store::Error::Unavailable {
                what: "write",
                source: "unplugged".into(),
            });
        }
        self.inner.commit(batch).await
    }
}

fn timeouts() -> Timeouts {
    let short_backoff = Backoff {
        base: Duration::from_millis(20),
        max: Duration::from_millis(40),
    };
    Timeouts {
        decline: Duration::from_mins(2),
        refuse_rest: Duration::from_mins(1),
        launch: Duration::from_millis(300),
        reconcile: Duration::from_mins(10),
        revive: Duration::from_millis(30),
        reconnect: short_backoff,
        store: short_backoff,
        kill: short_backoff,
        reconcile_retry: short_backoff,
        matcher: Backoff {
            base: Duration::from_mins(10),
            max: Duration::from_mins(10),
        },
        // Longer than any test. Tests that wait for one of these times set it.
        reservation: Duration::from_mins(10),
        release: Duration::from_mins(10),
        inverse_offer: Duration::from_mins(10),
        stall: Duration::from_millis(50),
    }
}

fn dependencies(
    masters: String,
    store: &Arc<FlakyStore>,
    matchers: Box<dyn MatcherHost>,
    timeouts: Timeouts,
) -> Dependencies {
    let cluster = transom_cluster::Config {
        masters: vec![masters],
        ..transom_cluster::Config::default()
    };
    Dependencies {
        cluster: Client::new(cluster).unwrap(),
        framework: v1::FrameworkInfo {
            user: "u".into(),
            name: "fw".into(),
            ..v1::FrameworkInfo::default()
        },
        store: store.clone(),
        prefix: "fw".to_owned(),
        matchers,
        timeouts,
        maintenance: MaintenanceMode::Evacuated {
            ahead: Duration::from_mins(1),
        },
    }
}

impl Rig {
    /// The dependencies of a scheduler with this rig's master and store.
    pub(super) fn dependencies(&self) -> Dependencies {
        dependencies(
            self.master.address.to_string(),
            &self.store,
            Box::new(ScriptedHost(Arc::clone(&self.script))),
            timeouts(),
        )
    }

    /// Starts a scheduler with an empty store.
    pub(super) async fn new() -> Self {
        Self::empty(None, timeouts()).await
    }

    /// Starts a scheduler with an empty store and other times.
    pub(super) async fn with_timeouts(change: impl FnOnce(&mut Timeouts)) -> Self {
        let mut timeouts = timeouts();
        change(&mut timeouts);
        Self::empty(None, timeouts).await
    }

    /// Starts a scheduler with these records and the framework id `F-0` in the store.
    pub(super) async fn with_records(records: &[TaskRecord]) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let inner = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let any = transom_store::Expect::Any;
        inner.put("fw/framework-id", "F-0".into(), any).await.unwrap();
        for record in records {
            let value = serde_json::to_vec(record).unwrap();
            inner
                .put(&format!("fw/tasks/{}", record.id), value.into(), any)
                .await
                .unwrap();
        }
        let store = Arc::new(FlakyStore {
            inner,
            down: AtomicBool::new(false),
            rejected: Notify::new(),
        });
        let master = Master::start(store.clone()).await;
        Self::with_store(master, store, dir, None).await
    }

    /// Starts a scheduler with an empty store and another matcher than the scripted one.
    pub(super) async fn with_matchers(matchers: Box<dyn MatcherHost>) -> Self {
        Self::empty(Some(matchers), timeouts()).await
    }

    /// Starts a scheduler with an empty store, another address for finding the master, and this
    /// delay between attempts to subscribe.
    pub(super) async fn with_masters(masters: String, wait: Duration) -> Self {
        let (master, store, dir) = Self::start_master().await;
        let mut timeouts = timeouts();
        timeouts.reconnect = Backoff {
            base: wait,
            max: wait,
        };
        Self::build(master, store, dir, None, masters, timeouts).await
    }

    async fn empty(matchers: Option<Box<dyn MatcherHost>>, timeouts: Timeouts) -> Self {
        let (master, store, dir) = Self::start_master().await;
        let masters = master.address.to_string();
        Self::build(master, store, dir, matchers, masters, timeouts).await
    }

    /// Starts a master with an empty store.
    async fn start_master() -> (Master, Arc<FlakyStore>, Arc<tempfile::TempDir>) {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let inner = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let store = Arc::new(FlakyStore {
            inner,
            down: AtomicBool::new(false),
            rejected: Notify::new(),
        });
        (Master::start(store.clone()).await, store, dir)
    }

    async fn with_store(
        master: Master,
        store: Arc<FlakyStore>,
        dir: Arc<tempfile::TempDir>,
        matchers: Option<Box<dyn MatcherHost>>,
    ) -> Self {
        let masters = master.address.to_string();
        Self::build(master, store, dir, matchers, masters, timeouts()).await
    }

    async fn build(
        master: Master,
        store: Arc<FlakyStore>,
        dir: Arc<tempfile::TempDir>,
        matchers: Option<Box<dyn MatcherHost>>,
        masters: String,
        timeouts: Timeouts,
    ) -> Self {
        let script = Arc::new(MatcherScript::default());
        let (mut registry, token) = (Registry::default(), CancellationToken::new());
        let matchers = matchers.unwrap_or_else(|| Box::new(ScriptedHost(Arc::clone(&script))));
        let dependencies = dependencies(masters, &store, matchers, timeouts);
        let (scheduler, events) = dependencies
            .start(Metrics::register(&mut registry, "fw"), token.clone())
            .await
            .unwrap();
        Self {
            master,
            store,
            script,
            scheduler,
            events,
            registry,
            token,
            dir,
        }
    }

    /// Stops the scheduler and starts another one with the same master and store.
    pub(super) async fn restart(self) -> Self {
        self.token.cancel();
        self.scheduler.stopped().await;
        Self::with_store(
            self.master.clone(),
            Arc::clone(&self.store),
            Arc::clone(&self.dir),
            None,
        )
        .await
    }

    /// The next event.
    pub(super) async fn event(&mut self) -> Event {
        let Ok(event) = tokio::time::timeout(Duration::from_secs(20), self.events.next()).await else {
            panic!("no event; calls so far: {:?}", self.master.kinds());
        };
        event.expect("the scheduler runs")
    }

    /// The next event as a text: its name and its subject.
    pub(super) async fn event_text(&mut self) -> String {
        let text = |record: &TaskRecord| format!("{} {}", record.id, record.state);
        match self.event().await {
            Event::Registered { framework_id, .. } => format!("registered {framework_id}"),
            Event::Reregistered { .. } => "reregistered".to_owned(),
            Event::Disconnected => "disconnected".to_owned(),
            Event::Launched(record) => format!("launched {}", text(&record)),
            Event::Updated(record) => format!("updated {}", text(&record)),
            Event::NeverLaunched(task) => format!("never launched {task}"),
            Event::Rejected { task, reason } => format!("rejected {task}: {reason}"),
            Event::ReservationChanged { key, reservation } => {
                let state = match reservation {
                    None => "removed".to_owned(),
                    Some(record) if record.releasing => "released".to_owned(),
                    Some(record) if !record.created => "requested".to_owned(),
                    Some(record) => match &record.task {
                        None => "created".to_owned(),
                        Some(task) => format!("used by {task}"),
                    },
                };
                format!("reservation {key} {state}")
            }
            Event::KillsSelected { choice, kills } => {
                let kills: Vec<&str> = kills.iter().map(TaskId::as_str).collect();
                format!("of {} kill {}", choice.spec.id, kills.join(" "))
            }
            Event::Message { data, .. } => format!("message {data}"),
            Event::MaintenanceDue(agent) => format!("maintenance due {agent}"),
            Event::MaintenanceOver(agent) => format!("maintenance over {agent}"),
            Event::AgentLost(agent) => format!("lost {agent}"),
            Event::Unknown { status } => format!("unknown {} {}", status.task_id, status.state),
        }
    }

    /// Submits tasks and waits until the actor has carried out the request.
    pub(super) async fn submit(&self, spec: &Arc<RunSpec>, tasks: &[&str]) {
        let requests = tasks
            .iter()
            .map(|task| testing::task_request(task, spec))
            .collect();
        self.scheduler.submit(requests);
        self.wait_for_turn().await;
    }

    /// Kills a task and waits until the actor has carried out the request.
    pub(super) async fn kill(&self, task: &str, grace: Option<Duration>) {
        self.scheduler.kill(vec![task.into()], grace);
        self.wait_for_turn().await;
    }

    /// Purges a task and waits until the actor has tried to.
    pub(super) async fn purge(&self, task: &str) {
        self.scheduler.purge(vec![task.into()]);
        self.wait_for_turn().await;
    }

    /// Waits for the end of a turn that began after this call.
    pub(super) async fn wait_for_turn(&self) {
        let shared = &self.scheduler.shared;
        let mut turns = shared.turns.subscribe();
        let turn = async {
            // The first turn that ends may have begun before this call.
            for _ in 0..2 {
                turns.mark_unchanged();
                shared.requests.add(|_| {});
                turns.changed().await.unwrap();
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), turn).await;
        ended.unwrap_or_else(|_| panic!("no turn; calls so far: {:?}", self.master.kinds()));
    }

    /// Launches a task on agent `a1` and waits until it runs.
    pub(super) async fn start_task(&mut self, task: &str) {
        self.submit(&Arc::new(testing::spec("/app")), &[task]).await;
        self.master.call("SUBSCRIBE", 1).await;
        self.wait_until("registered F-1").await;
        self.launched(task).await;
    }

    /// Launches one more task and waits until it runs.
    pub(super) async fn start_another_task(&mut self, task: &str) {
        self.submit(&Arc::new(testing::spec("/app")), &[task]).await;
        self.launched(task).await;
    }

    async fn launched(&mut self, task: &str) {
        let before = self.master.calls("ACCEPT").len();
        self.master
            .offer(&[testing::offer(&format!("o-{task}"), "a1", 4.0, &[])]);
        self.master.call("ACCEPT", before + 1).await;
        assert_eq!(self.event_text().await, format!("launched {task} TASK_STAGING"));
        self.master.update(task, "TASK_RUNNING", &format!("run-{task}"));
        assert_eq!(self.event_text().await, format!("updated {task} TASK_RUNNING"));
    }

    async fn wait_until(&mut self, expected: &str) {
        assert_eq!(self.event_text().await, expected);
    }

    pub(super) fn record(&self, task: &str) -> Option<Arc<TaskRecord>> {
        self.scheduler.tasks().get(&TaskId::from(task)).cloned()
    }

    /// A counter's or gauge's value as exported.
    pub(super) fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{framework=\"fw\"}}")));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }
}
