//! Scripted dependencies for tests: a matcher with one rule and a cluster of one agent, with the
//! scripted scheduler of the testkit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use transom_cluster::{AgentId, FrameworkId, TaskId};
use transom_common::HostPort;
use transom_framework::{Abdication, FrameworkService, Leader, LeaderTerm};
use transom_plugin_host::CallError;
use transom_plugin_host::matcher::{
    Agent, Attribute, AttributeValue, Constraint, ConstraintError, Task, Verdict,
};
use transom_scheduler::{AgentLocation, Reason, Reasons, SchedulerApi};
use transom_store::typed::TIMEOUT;
use transom_store::{Leadership, Store};
use transom_testkit::{HeldStore, ScriptedScheduler, WAIT_TIMEOUT};
use transom_web::Forwarder;

use crate::api::access_rules;
use crate::dependencies::{AgentDirectory, FileChunk, Matcher};
use crate::{Explainer, Settings, start};
use transom_framework::feasibility::{ActiveAgent, AgentList, MatchSession, MatchSessions};

/// The only agent.
fn agent() -> AgentLocation {
    AgentLocation {
        id: "a1".into(),
        hostname: "h1".to_owned(),
        region: None,
        zone: None,
        endpoint: Some(HostPort::new("h1", 5051)),
    }
}

/// A scheduler whose pending tasks have an unfulfilled constraint.
fn scheduler() -> Arc<ScriptedScheduler> {
    let scheduler = ScriptedScheduler::new(agent());
    scheduler.set_reasons(Reasons {
        last: [(Reason::UnfulfilledConstraint, 1)].into(),
        last_offers: 1,
        last_constraints: [(0, 1)].into(),
        ..Reasons::default()
    });
    scheduler
}

/// A matcher that rejects conditions without a colon.
#[derive(Debug, Default)]
pub(crate) struct ColonMatcher {
    pub(crate) is_unavailable: AtomicBool,
}

#[async_trait]
impl Matcher for ColonMatcher {
    async fn check(&self, conditions: &[Constraint]) -> Result<Vec<ConstraintError>, CallError> {
        if self.is_unavailable.load(Ordering::Relaxed) {
            return Err(CallError::Stopped);
        }
        let is_invalid =
            |condition: &Constraint| matches!(condition, Constraint::Expression(text) if !text.contains(':'));
        let errors = (0..)
            .zip(conditions)
            .filter(|(_, condition)| is_invalid(condition));
        let error = |(condition, _)| ConstraintError {
            constraint: condition,
            message: "expected key:value".to_owned(),
        };
        Ok(errors.map(error).collect())
    }
}

impl MatchSessions for ColonMatcher {
    fn match_session(&self, agents: Vec<Agent>) -> Box<dyn MatchSession> {
        Box::new(AttributeSession(agents))
    }
}

/// A session in which an agent satisfies a condition if it has that attribute.
struct AttributeSession(Vec<Agent>);

#[async_trait]
impl MatchSession for AttributeSession {
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
            let rejected = conditions.find(|(_, condition)| !has(agent, condition));
            rejected.map_or(Verdict::Fits, |(index, _)| Verdict::Refused(index))
        };
        Ok(self.0.iter().map(judge).collect())
    }
}

/// The stdout of the job `binary`: characters that are split between pages, and bytes that are not
/// UTF-8.
pub(crate) const BINARY: &[u8] = b"\xc3\xa4\xc3\xb6\xc3\xbc\xe2\x82\xac\xff\x00\xfe\xf0\x9f\x98\x80 end\n";

/// A cluster of one agent, with the output of tasks.
#[derive(Debug)]
pub(crate) struct SingleAgent;

#[async_trait]
impl AgentList for SingleAgent {
    async fn agents(&self) -> transom_cluster::Result<Vec<ActiveAgent>> {
        let agent = Agent {
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
        };
        let total = [4.0, 8192.0, 100_000.0, 0.0];
        Ok(vec![ActiveAgent {
            agent,
            total,
            ports: Vec::new(),
        }])
    }
}

#[async_trait]
impl AgentDirectory for SingleAgent {
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
        if task.as_str() == "silent" {
            return std::future::pending().await;
        }
        let text = format!("{file} of {task} of {framework} on {agent}\n");
        let written = match (task.as_str(), file) {
            ("binary", "stdout") => BINARY,
            _ => text.as_bytes(),
        };
        let size = written.len() as u64;
        let offset = offset.unwrap_or(size.saturating_sub(length)).min(size);
        // Returns a few bytes per call, like the pages of an agent.
        let end = (offset + length.min(7)).min(size);
        let data = written[offset as usize..end as usize].to_vec();
        Ok(FileChunk { data, offset, size })
    }
}

/// The service with scripted dependencies.
pub(crate) struct Site {
    pub(crate) scheduler: Arc<ScriptedScheduler>,
    pub(crate) matcher: Arc<ColonMatcher>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) router: Router,
    pub(crate) explainer: Explainer,
    config: Settings,
    token: CancellationToken,
    running: Option<JoinHandle<crate::Result<()>>>,
    _elected: watch::Sender<Leadership>,
    /// The directory of the store; deleted with the last site that uses it.
    dir: Option<tempfile::TempDir>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    pub(crate) async fn start_with(config: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let mut site = Self::assemble(config, store, scheduler(), TIMEOUT);
        site.dir = Some(dir);
        site
    }

    /// Starts the service with a store whose commits the test can hold.
    pub(crate) async fn start_with_held_store(config: Settings) -> (Self, Arc<HeldStore>) {
        let dir = tempfile::tempdir().unwrap();
        let inner = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let store = HeldStore::new(inner);
        // Long enough for a write on a busy machine.
        let timeout = Duration::from_secs(1);
        let mut site = Self::assemble(config, store.clone(), scheduler(), timeout);
        site.dir = Some(dir);
        (site, store)
    }

    fn assemble(
        mut config: Settings,
        store: Arc<dyn Store>,
        scheduler: Arc<ScriptedScheduler>,
        store_timeout: Duration,
    ) -> Self {
        config.container_image_slave = Some("default:1".to_owned());
        let token = CancellationToken::new();
        let (elected, election) = watch::channel(Leadership::Leader);
        let leader = Leader::new("localhost:1", election);
        let matcher = Arc::new(ColonMatcher::default());
        let (router, mut runner) = start::assemble(
            config.clone(),
            Forwarder::new(start::VIA, "localhost:1").unwrap(),
            Arc::clone(&matcher) as Arc<dyn Matcher>,
            Arc::new(SingleAgent),
            &leader,
            &mut Registry::default(),
            token.clone(),
        );
        runner.dependencies.store_timeout = store_timeout;
        let events = scheduler.attach();
        let router = config.http_port().config().protect(router, access_rules());
        let term = LeaderTerm {
            scheduler: Arc::clone(&scheduler) as Arc<dyn SchedulerApi>,
            events,
            lease: None,
            store: Arc::clone(&store),
            token: token.clone(),
            abdication: Abdication::default(),
        };
        let explainer = runner.explainer();
        let running = tokio::spawn(async move { runner.lead(term).await });
        Self {
            scheduler,
            matcher,
            store,
            router,
            explainer,
            config,
            token,
            running: Some(running),
            _elected: elected,
            dir: None,
        }
    }

    /// Sets the configuration for the next start.
    pub(crate) fn set_config(&mut self, config: Settings) {
        self.config = config;
    }

    /// Stops the service and starts it again with the same store; the scheduler keeps its tasks.
    pub(crate) async fn restart(mut self) -> Self {
        self.token.cancel();
        if let Some(running) = self.running.take() {
            running.await.unwrap().unwrap();
        }
        let mut next = Self::assemble(
            self.config.clone(),
            Arc::clone(&self.store),
            Arc::clone(&self.scheduler),
            TIMEOUT,
        );
        next.dir = self.dir.take();
        next
    }

    /// Sends a request from loopback.
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
        let response = tokio::time::timeout(WAIT_TIMEOUT, self.router.clone().oneshot(request))
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

    /// Queues a job that has to be accepted.
    pub(crate) async fn queue(&self, body: Value) {
        let answer = self.ask(Method::POST, "/v0/queue_command", Some(body)).await;
        assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, "Ok"));
    }

    /// Waits until a job has a state.
    pub(crate) async fn wait_for_state(&self, id: &str, state: &str) -> Value {
        let mut since = 0;
        let deadline = tokio::time::Instant::now() + WAIT_TIMEOUT;
        loop {
            let task = self.get(&format!("/v0/task/{id}")).await.json();
            if task["status"]["state"] == state {
                return task;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{id} is not {state}: {task}"
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
