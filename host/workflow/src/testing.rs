//! Scripted dependencies for tests: a scheduler, a matcher with one rule, and a cluster of one
//! agent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use transom_cluster::v1::{ContainerStatus, TaskInfo, TaskState, TaskStatus};
use transom_cluster::{AgentId, FrameworkId, TaskId};
use transom_common::HostPort;
use transom_framework::{FrameworkService, Leader, LeaderTerm};
use transom_plugin_host::CallError;
use transom_plugin_host::matcher::{
    Agent, Attribute, AttributeValue, Constraint, ConstraintError, Task, Verdict,
};
use transom_scheduler::{
    AgentLocation, Event, Events, PendingTask, Phase, Placement, Reason, Reasons, SchedulerApi,
    SubscriptionStatus, TaskRecord, TaskRequest, Tasks,
};
use transom_store::{Batch, Entry, Leadership, Store};
use transom_web::Forwarder;

use crate::api::access_rules;
use crate::dependencies::{AgentDirectory, FileChunk, MatchSession, Matcher};
use crate::{Config, start};

/// Maximum wait in a test.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Events that a test may send without being read.
const MAX_EVENTS: usize = 1024;

/// A scheduler that launches on request of the test.
#[derive(Debug)]
pub(crate) struct Scripted {
    inner: Mutex<Inner>,
    events: Mutex<mpsc::Sender<Event>>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Inner {
    wanted: BTreeMap<TaskId, TaskRequest>,
    tasks: Tasks,
    launched: Vec<TaskInfo>,
    forgotten: Vec<TaskId>,
}

impl Scripted {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            events: Mutex::new(mpsc::channel(1).0),
            changed: watch::Sender::new(()),
        })
    }

    /// A new core listens from now on.
    fn attach(&self) -> Events {
        let (events, receiver) = mpsc::channel(MAX_EVENTS);
        *self.events.lock().unwrap() = events;
        // Demand is not stored.
        self.inner.lock().unwrap().wanted.clear();
        receiver.into()
    }

    fn send(&self, event: Event) {
        // The service may be stopped.
        let _ = self.events.lock().unwrap().try_send(event);
    }

    /// Waits until something holds of what is wanted, launched and forgotten.
    pub(crate) async fn until<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = look(self) {
                    return found;
                }
                changed.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
        waited.unwrap_or_else(|_| panic!("waited for {what}; {self:?}"))
    }

    /// The ids of what is wanted, once there are so many.
    pub(crate) async fn wanted(&self, count: usize) -> Vec<TaskId> {
        self.until(&format!("{count} wanted"), |scripted| {
            let inner = scripted.inner.lock().unwrap();
            let ids: Vec<TaskId> = inner.wanted.keys().cloned().collect();
            (ids.len() == count).then_some(ids)
        })
        .await
    }

    /// Launches a wanted task, and gives what was launched.
    pub(crate) async fn launch(&self, task: &str) -> TaskInfo {
        let task = TaskId::from(task);
        let (wanted, info) = self
            .until(&format!("{task} to be wanted"), |scripted| {
                let wanted = scripted.inner.lock().unwrap().wanted.remove(&task)?;
                let placement = Placement {
                    task: task.clone(),
                    agent: place(),
                    host_ports: vec![31_000; wanted.spec.ports.len()],
                };
                let info = wanted.spec.build.task().unwrap().build(&placement).unwrap();
                Some((wanted, info))
            })
            .await;
        let record = Arc::new(record(&wanted));
        let mut inner = self.inner.lock().unwrap();
        inner.tasks.insert(task, Arc::clone(&record));
        inner.launched.push(info.clone());
        drop(inner);
        self.send(Event::Launched(record));
        info
    }

    /// The cluster says something of a task.
    pub(crate) fn update(&self, task: &str, state: TaskState, message: Option<&str>) {
        let task = TaskId::from(task);
        let mut inner = self.inner.lock().unwrap();
        let mut record = inner.tasks[&task].as_ref().clone();
        record.status = Some(TaskStatus {
            task_id: task.clone(),
            state: state.clone(),
            message: message.map(str::to_owned),
            agent_id: Some("a1".into()),
            uuid: Some("dXVpZA==".to_owned()),
            container_status: Some(ContainerStatus {
                container_id: Some("c1".into()),
                ..ContainerStatus::default()
            }),
            ..TaskStatus::default()
        });
        record.phase = if state.is_terminal() || state == TaskState::Unknown {
            Phase::Terminal
        } else {
            Phase::Launched
        };
        record.state = state;
        record.updated_at = Timestamp::now();
        let record = Arc::new(record);
        inner.tasks.insert(task, Arc::clone(&record));
        drop(inner);
        self.send(Event::Updated(record));
    }

    /// Waits until the record of a task is forgotten.
    pub(crate) async fn forgotten(&self, task: &str) {
        let task = TaskId::from(task);
        self.until(&format!("{task} to be forgotten"), |scripted| {
            scripted
                .inner
                .lock()
                .unwrap()
                .forgotten
                .contains(&task)
                .then_some(())
        })
        .await;
    }

    /// Waits until a task is to be killed.
    pub(crate) async fn killing(&self, task: &str) {
        let task = TaskId::from(task);
        self.until(&format!("{task} to be killed"), |scripted| {
            let inner = scripted.inner.lock().unwrap();
            inner.tasks.get(&task).filter(|record| record.killing).map(|_| ())
        })
        .await;
    }

    /// How often a task was launched.
    pub(crate) fn launches(&self) -> usize {
        self.inner.lock().unwrap().launched.len()
    }
}

fn place() -> AgentLocation {
    AgentLocation {
        id: "a1".into(),
        hostname: "h1".to_owned(),
        region: None,
        zone: None,
        endpoint: Some(HostPort::new("h1", 5051)),
    }
}

fn record(wanted: &TaskRequest) -> TaskRecord {
    TaskRecord {
        id: wanted.id.clone(),
        run_spec: wanted.spec.id.clone(),
        version: String::new(),
        group: None,
        agent: Arc::new(place()),
        agent_attributes: Arc::default(),
        host_ports: Vec::new(),
        phase: Phase::Launched,
        state: TaskState::Staging,
        status: None,
        intended_at: Timestamp::now(),
        staged_at: None,
        started_at: None,
        updated_at: Timestamp::now(),
        killing: false,
        kill_grace: None,
        metadata: Arc::default(),
    }
}

impl SchedulerApi for Scripted {
    fn submit(&self, tasks: Vec<TaskRequest>) {
        let mut inner = self.inner.lock().unwrap();
        for wanted in tasks {
            if !inner.tasks.contains_key(&wanted.id) {
                inner.wanted.insert(wanted.id.clone(), wanted);
            }
        }
        drop(inner);
        self.changed.send_replace(());
    }

    fn kill(&self, tasks: Vec<TaskId>, _: Option<Duration>) {
        let mut inner = self.inner.lock().unwrap();
        for task in tasks {
            if inner.wanted.remove(&task).is_some() {
                self.send(Event::NeverLaunched(task));
            } else if let Some(record) = inner.tasks.get_mut(&task) {
                Arc::make_mut(record).killing = true;
            }
        }
        drop(inner);
        self.changed.send_replace(());
    }

    fn purge(&self, tasks: Vec<TaskId>) {
        let mut inner = self.inner.lock().unwrap();
        for task in tasks {
            if let Some(record) = inner.tasks.get(&task) {
                assert!(record.is_terminal(), "{task} is forgotten while it runs");
                inner.tasks.remove(&task);
            }
            inner.forgotten.push(task);
        }
        drop(inner);
        self.changed.send_replace(());
    }

    fn tasks(&self) -> Arc<Tasks> {
        Arc::new(self.inner.lock().unwrap().tasks.clone())
    }

    fn pending(&self) -> Vec<PendingTask> {
        let inner = self.inner.lock().unwrap();
        let reasons = Arc::new(Reasons {
            last: [(Reason::UnfulfilledConstraint, 1)].into(),
            last_offers: 1,
            last_constraints: [(0, 1)].into(),
            ..Reasons::default()
        });
        inner
            .wanted
            .values()
            .map(|wanted| PendingTask {
                task: wanted.id.clone(),
                run_spec: wanted.spec.id.clone(),
                version: String::new(),
                since: Timestamp::now(),
                not_before: None,
                reasons: Arc::clone(&reasons),
            })
            .collect()
    }

    fn subscription(&self) -> SubscriptionStatus {
        SubscriptionStatus {
            framework_id: Some("f1".into()),
            connected: true,
            master: None,
            since: Timestamp::now(),
        }
    }
}

/// A store that does not commit while the test holds it: as a stuck disk does, it commits
/// everything later, in order, even if the caller no longer waits.
#[derive(Debug)]
pub(crate) struct HeldStore {
    inner: Arc<dyn Store>,
    held: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl HeldStore {
    fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            held: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
            turn: Arc::default(),
        })
    }

    pub(crate) fn hold(&self) {
        self.waiting.send_replace(0);
        self.held.send_replace(true);
    }

    pub(crate) fn release(&self) {
        self.held.send_replace(false);
    }

    /// Waits until a commit is held.
    pub(crate) async fn holding(&self) {
        let mut waiting = self.waiting.subscribe();
        let held = waiting.wait_for(|waiting| *waiting > 0);
        tokio::time::timeout(TEST_TIMEOUT, held).await.unwrap().unwrap();
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
        let (inner, turn, mut held) = (
            Arc::clone(&self.inner),
            Arc::clone(&self.turn),
            self.held.subscribe(),
        );
        if *held.borrow() {
            self.waiting.send_modify(|waiting| *waiting += 1);
        }
        let commit = tokio::spawn(async move {
            let _turn = turn.lock().await;
            held.wait_for(|held| !held).await.unwrap();
            inner.commit(batch).await
        });
        commit.await.unwrap()
    }
}

/// Conditions need a colon.
#[derive(Debug, Default)]
pub(crate) struct Colons {
    pub(crate) away: AtomicBool,
}

#[async_trait]
impl Matcher for Colons {
    async fn check(&self, conditions: &[Constraint]) -> Result<Vec<ConstraintError>, CallError> {
        if self.away.load(Ordering::Relaxed) {
            return Err(CallError::Stopped);
        }
        let wrong =
            |condition: &Constraint| matches!(condition, Constraint::Expression(text) if !text.contains(':'));
        let errors = (0..).zip(conditions).filter(|(_, condition)| wrong(condition));
        let error = |(condition, _)| ConstraintError {
            constraint: condition,
            message: "expected key:value".to_owned(),
        };
        Ok(errors.map(error).collect())
    }

    fn match_session(&self, agents: Vec<Agent>) -> Box<dyn MatchSession> {
        Box::new(Attributes(agents))
    }
}

/// An agent satisfies a condition when it has the attribute.
struct Attributes(Vec<Agent>);

#[async_trait]
impl MatchSession for Attributes {
    async fn judge(&mut self, task: &Task) -> Result<Vec<Verdict>, CallError> {
        let has = |agent: &Agent, condition: &Constraint| {
            let text = |attribute: &Attribute| match &attribute.value {
                AttributeValue::Text(value) => format!("{}:{value}", attribute.name),
                _ => String::new(),
            };
            let mut texts = agent.attributes.iter().map(text);
            matches!(condition, Constraint::Expression(wanted) if texts.any(|text| text == *wanted))
        };
        let judge = |agent: &Agent| {
            let mut conditions = (0..).zip(&task.constraints);
            let refused = conditions.find(|(_, condition)| !has(agent, condition));
            refused.map_or(Verdict::Fits, |(index, _)| Verdict::Refused(index))
        };
        Ok(self.0.iter().map(judge).collect())
    }
}

/// What a job called `binary` wrote to stdout: characters that pages cut in two, and bytes that are
/// none.
pub(crate) const BINARY: &[u8] = b"\xc3\xa4\xc3\xb6\xc3\xbc\xe2\x82\xac\xff\x00\xfe\xf0\x9f\x98\x80 end\n";

/// One agent, and what a task wrote there.
#[derive(Debug)]
pub(crate) struct OneAgent;

#[async_trait]
impl AgentDirectory for OneAgent {
    async fn agents(&self) -> transom_cluster::Result<Vec<Agent>> {
        Ok(vec![Agent {
            handle: 0,
            id: "a1".to_owned(),
            hostname: "h1".to_owned(),
            region: None,
            zone: None,
            attributes: vec![Attribute {
                name: "rack".to_owned(),
                value: AttributeValue::Text("r1".to_owned()),
            }],
            extensions: Vec::new(),
        }])
    }

    async fn agent(&self, id: &AgentId) -> transom_cluster::Result<Option<HostPort>> {
        Ok((id.as_str() == "a1").then(|| HostPort::new("h1", 5051)))
    }

    async fn read(
        &self,
        agent: &HostPort,
        framework: &FrameworkId,
        task: &TaskId,
        file: &str,
        offset: Option<u64>,
        length: u64,
    ) -> transom_cluster::Result<FileChunk> {
        let text = format!("{file} of {task} of {framework} on {agent}\n");
        let written = match (task.as_str(), file) {
            ("binary", "stdout") => BINARY,
            _ => text.as_bytes(),
        };
        let size = written.len() as u64;
        let offset = offset.unwrap_or(size.saturating_sub(length)).min(size);
        // A few bytes at a time, as agents give pages.
        let end = (offset + length.min(7)).min(size);
        let data = written[offset as usize..end as usize].to_vec();
        Ok(FileChunk { data, offset, size })
    }
}

/// The job with scripted sides.
pub(crate) struct Site {
    pub(crate) scheduler: Arc<Scripted>,
    pub(crate) matcher: Arc<Colons>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) router: Router,
    config: Config,
    token: CancellationToken,
    running: Option<JoinHandle<crate::Result<()>>>,
    _elected: watch::Sender<Leadership>,
    /// Where the store is; gone with the last site over it.
    dir: Option<tempfile::TempDir>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::start_with(Config::default()).await
    }

    pub(crate) async fn start_with(config: Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let mut site = Self::over(config, store, Scripted::new());
        site.dir = Some(dir);
        site
    }

    /// The same, with a store that the test can hold.
    pub(crate) async fn start_with_held_store(config: Config) -> (Self, Arc<HeldStore>) {
        let dir = tempfile::tempdir().unwrap();
        let inner = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let store = HeldStore::new(inner);
        let mut site = Self::over(config, store.clone(), Scripted::new());
        site.dir = Some(dir);
        (site, store)
    }

    fn over(mut config: Config, store: Arc<dyn Store>, scheduler: Arc<Scripted>) -> Self {
        config.defaults.image = Some("default:1".to_owned());
        let token = CancellationToken::new();
        let (elected, election) = watch::channel(Leadership::Leader);
        let leader = Leader::new("localhost:1", election);
        let matcher = Arc::new(Colons::default());
        let (router, mut runner) = start::assemble(
            config.clone(),
            Forwarder::new(start::VIA, "localhost:1").unwrap(),
            Arc::clone(&matcher) as Arc<dyn Matcher>,
            Arc::new(OneAgent),
            &leader,
            &mut Registry::default(),
            token.clone(),
        );
        let events = scheduler.attach();
        let router = config.port.protect(router, access_rules());
        let term = LeaderTerm {
            scheduler: Arc::clone(&scheduler) as Arc<dyn SchedulerApi>,
            events,
            store: Arc::clone(&store),
            token: token.clone(),
        };
        let running = tokio::spawn(async move { runner.lead(term).await });
        Self {
            scheduler,
            matcher,
            store,
            router,
            config,
            token,
            running: Some(running),
            _elected: elected,
            dir: None,
        }
    }

    /// Ends the job and starts it again on what is stored; the scheduler keeps its tasks.
    pub(crate) async fn restart(mut self) -> Self {
        self.token.cancel();
        if let Some(running) = self.running.take() {
            running.await.unwrap().unwrap();
        }
        let mut next = Self::over(
            self.config.clone(),
            Arc::clone(&self.store),
            Arc::clone(&self.scheduler),
        );
        next.dir = self.dir.take();
        next
    }

    /// Asks from this machine.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.ask_from([127, 0, 0, 1], method, path, body, None).await
    }

    pub(crate) async fn ask_from(
        &self,
        peer: [u8; 4],
        method: Method,
        path: &str,
        body: Option<Value>,
        authorization: Option<&str>,
    ) -> Answer {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let mut request = Request::builder().method(method).uri(path).body(body).unwrap();
        if let Some(value) = authorization {
            let value = value.parse().unwrap();
            request.headers_mut().insert(http::header::AUTHORIZATION, value);
        }
        let peer = SocketAddr::from((peer, 1));
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = tokio::time::timeout(TEST_TIMEOUT, self.router.clone().oneshot(request))
            .await
            .expect("an answer in time")
            .unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8_lossy(&body).into_owned(),
            body,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    /// Queues a job that is to be taken.
    pub(crate) async fn queue(&self, body: Value) {
        let answer = self.ask(Method::POST, "/v0/queue_command", Some(body)).await;
        assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, "Ok"));
    }

    /// Waits until a job shows a state.
    pub(crate) async fn until(&self, id: &str, state: &str) -> Value {
        let mut since = 0;
        let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
        loop {
            let seen = self.get(&format!("/v0/task/{id}")).await.json();
            if seen["status"]["state"] == state {
                return seen;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{id} is not {state}: {seen}"
            );
            let events = self.get(&format!("/v0/events?since={since}&wait=1")).await.json();
            since = events["next"].as_u64().unwrap();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}
