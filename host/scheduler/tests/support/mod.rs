//! A real scheduler on a real (mini)cluster, with the attribute matcher's component, and a job that
//! keeps a number of instances running. Which processes ran is read from the agents' journals,
//! never from the scheduler.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]
#![allow(dead_code, unreachable_pub, reason = "every test binary uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use transom_cluster::v1::{self, TaskState};
use transom_cluster::{Client, TaskId};
use transom_common::trace::TraceContext;
use transom_minicluster::{AgentConfig, Minicluster};
use transom_plugin_host::Plugins;
use transom_scheduler::{
    BuildTask, Event, Events, Metrics, Placement, RunSpec, Scheduler, SchedulerApi, TaskRecord, TaskRequest,
};
use transom_store::Store;

/// How long a test waits for an expected condition. Only a failing test waits that long.
pub const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Polls until `attempt` succeeds. If it does not in time, the panic message contains its last error.
pub async fn wait_until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(
                Instant::now() < end,
                "timed out waiting for {what}; last seen: {error}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A builder of a task that sleeps.
#[derive(Debug)]
struct SleepBuilder;

impl BuildTask for SleepBuilder {
    fn build(&self, placement: &Placement) -> Option<v1::TaskInfo> {
        let command = v1::CommandInfo {
            value: Some("exec sleep 1000".to_owned()),
            ..v1::CommandInfo::default()
        };
        Some(v1::TaskInfo {
            name: placement.task.to_string(),
            command: Some(command),
            ..v1::TaskInfo::default()
        })
    }
}

/// A cluster of three agents.
pub struct Cluster {
    pub minicluster: Minicluster,
    pub dir: TempDir,
    token: CancellationToken,
}

/// A process in a journal, and its task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub task: String,
    pub pid: u64,
    pub start: u64,
}

impl Cluster {
    /// Starts a cluster with shorter intervals than a real one.
    pub async fn start(change: impl FnOnce(&mut transom_minicluster::Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = transom_minicluster::Config::new(dir.path());
        config.allocation_interval = Duration::from_millis(100);
        config.agent_timeout = Duration::from_millis(500);
        config.update_retry = Duration::from_millis(300);
        config.agents = (0..3)
            .map(|index| AgentConfig {
                ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
                port: 0,
                hostname: format!("a{index}"),
                cpus: 4.0,
                mem: 4096.0,
                disk: 4096.0,
                disks: Vec::new(),
                // These ports are only offered. No task of these tests listens on one.
                ports: (31_000 + index * 10, 31_009 + index * 10),
                attributes: vec![("rack".to_owned(), format!("r{index}"))],
            })
            .collect();
        change(&mut config);
        let token = CancellationToken::new();
        let minicluster = config.start(token.clone()).await.unwrap();
        Self {
            minicluster,
            dir,
            token,
        }
    }

    pub async fn stop(self) {
        self.token.cancel();
        tokio::time::timeout(TEST_TIMEOUT, self.minicluster.stopped())
            .await
            .unwrap();
    }

    /// Sends a request to the master and returns the status and the body of the response.
    pub async fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.minicluster.master()).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub async fn fault(&self, fault: &Value) {
        let (status, body) = self
            .request("POST", "/minicluster/faults", &fault.to_string())
            .await;
        assert_eq!(status, 200, "{fault}: {body}");
    }

    pub async fn state(&self) -> Value {
        let (_, body) = self.request("GET", "/state", "").await;
        serde_json::from_str(&body).unwrap()
    }

    /// Host name of the agent that runs the most tasks.
    pub async fn busiest_agent(&self) -> String {
        let state = self.state().await;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let frameworks = list(&state["frameworks"]);
        let tasks: Vec<Value> = frameworks
            .iter()
            .flat_map(|framework| list(&framework["tasks"]))
            .collect();
        let agents = list(&state["slaves"]);
        let busiest = agents.iter().max_by_key(|agent| {
            let runs_on_agent = |task: &&Value| task["slave_id"] == agent["id"];
            tasks.iter().filter(runs_on_agent).count()
        });
        busiest.unwrap()["hostname"].as_str().unwrap().to_owned()
    }

    fn lines(&self) -> Vec<Value> {
        let agents = std::fs::read_dir(self.dir.path().join("agents")).unwrap();
        let journals = agents.map(|agent| agent.unwrap().path().join("journal.jsonl"));
        let lines = journals.flat_map(|journal| {
            let text = std::fs::read_to_string(journal).unwrap();
            // The last line may be incomplete.
            let complete_end = text.rfind('\n').map_or(0, |end| end + 1);
            text[..complete_end]
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect::<Vec<Value>>()
        });
        lines.collect()
    }

    fn processes(&self, event: &str) -> BTreeSet<Process> {
        let lines = self.lines();
        let of_event = lines.iter().filter(|line| line["event"] == event);
        let process = |line: &Value| Process {
            task: line["task"].as_str().unwrap().to_owned(),
            pid: line["pid"].as_u64().unwrap(),
            start: line["start"].as_u64().unwrap(),
        };
        of_event.map(process).collect()
    }

    /// All processes that ever started.
    pub fn launches(&self) -> BTreeSet<Process> {
        self.processes("launch")
    }

    /// The processes that have not ended.
    pub fn running_processes(&self) -> BTreeSet<Process> {
        let ended = self.processes("exit");
        self.launches().difference(&ended).cloned().collect()
    }
}

/// Kills a process directly, without the cluster.
pub fn kill_process(process: &Process) {
    let status = std::process::Command::new("kill")
        .args(["-KILL", &process.pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// The files of the components that `cargo xtask plugins` builds; `TRANSOM_COMPONENTS` names
/// another folder.
fn component(file: &str) -> PathBuf {
    let folder = std::env::var_os("TRANSOM_COMPONENTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/components"),
        PathBuf::from,
    );
    let path = folder.join(file);
    assert!(
        path.exists(),
        "{} is missing: run cargo xtask plugins first",
        path.display()
    );
    path
}

/// A scheduler and its dependencies, except for the cluster and the store.
pub struct Subject {
    pub scheduler: Scheduler,
    pub job: Job,
    pub registry: Registry,
    cluster: Client,
    plugins: Plugins,
    token: CancellationToken,
    _components: TempDir,
}

/// The configuration of a client for the cluster's masters.
pub fn cluster_config(masters: &[SocketAddr]) -> transom_cluster::Config {
    transom_cluster::Config {
        masters: masters.iter().map(ToString::to_string).collect(),
        call_timeout: Duration::from_secs(5),
        ..transom_cluster::Config::default()
    }
}

impl Subject {
    pub async fn start(cluster_config: transom_cluster::Config, store: Arc<dyn Store>) -> Self {
        let components = tempfile::tempdir().unwrap();
        for file in ["attributes.wasm", "attributes.toml"] {
            std::fs::copy(component(file), components.path().join(file)).unwrap();
        }
        let (mut registry, token) = (Registry::default(), CancellationToken::new());
        let plugins = transom_plugin_host::Config::new(components.path())
            .start(&mut registry, token.clone())
            .await
            .unwrap();
        let framework = v1::FrameworkInfo {
            user: "root".into(),
            name: "keeper".into(),
            failover_timeout: Some(3600.0),
            ..v1::FrameworkInfo::default()
        };
        let cluster = Client::new(cluster_config).unwrap();
        let (scheduler, events) =
            transom_scheduler::Config::new(cluster.clone(), framework, store, "keeper", plugins.clone())
                .start(Metrics::register(&mut registry, "keeper"), token.clone())
                .await
                .unwrap();
        Self {
            job: Job::new(scheduler.clone(), events),
            scheduler,
            registry,
            cluster,
            plugins,
            token,
            _components: components,
        }
    }

    pub async fn stop(self) {
        self.token.cancel();
        let all = async {
            self.scheduler.stopped().await;
            self.plugins.stopped().await;
            self.cluster.close().await;
        };
        tokio::time::timeout(TEST_TIMEOUT, all).await.unwrap();
    }

    /// A counter's or gauge's value as exported.
    pub fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// Keeps a number of slots filled, as services do. Each slot has one instance, which is replaced
/// when it has ended, is lost, or is unreachable. An instance that no longer belongs to a slot is
/// killed.
pub struct Job {
    scheduler: Scheduler,
    events: Events,
    spec: Arc<RunSpec>,
    /// The number of the current instance of each slot.
    slots: BTreeMap<u32, u32>,
}

impl Job {
    fn new(scheduler: Scheduler, events: Events) -> Self {
        let spec = RunSpec {
            id: "/keeper".to_owned(),
            version: "1".to_owned(),
            instances: 1,
            cpus: 0.5,
            mem: 64.0,
            disk: 0.0,
            gpus: 0.0,
            avoid_gpus: false,
            ports: Vec::new(),
            role: None,
            volumes: Vec::new(),
            constraints: Vec::new(),
            roles: Vec::new(),
            executor: transom_scheduler::ExecutorResources::default(),
            build: Arc::new(SleepBuilder).into(),
        };
        Self {
            scheduler,
            events,
            spec: Arc::new(spec),
            slots: BTreeMap::new(),
        }
    }

    /// Adds one more slot.
    pub fn add(&mut self) {
        let slot = u32::try_from(self.slots.len()).unwrap();
        self.slots.insert(slot, 0);
        self.submit(slot);
    }

    fn submit(&self, slot: u32) {
        let request = TaskRequest {
            id: self.task(slot),
            spec: Arc::clone(&self.spec),
            not_before: None,
            priority: 0,
            reservation: None,
            trace: TraceContext::default(),
        };
        self.scheduler.submit(vec![request]);
    }

    fn task(&self, slot: u32) -> TaskId {
        TaskId::from(format!("{slot}.{}", self.slots[&slot]))
    }

    /// The tasks that should run.
    pub fn expected_tasks(&self) -> BTreeSet<String> {
        self.slots
            .keys()
            .map(|slot| self.task(*slot).to_string())
            .collect()
    }

    /// Handles events for this time.
    pub async fn handle_events(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while let Ok(event) = tokio::time::timeout_at(end, self.events.next()).await {
            if let Event::Updated(record) = event.expect("the scheduler runs") {
                self.updated(&record);
            }
        }
    }

    fn updated(&mut self, record: &TaskRecord) {
        let (slot, number) = record.id.as_str().split_once('.').unwrap();
        let (slot, number): (u32, u32) = (slot.parse().unwrap(), number.parse().unwrap());
        let has_ended = record.is_terminal() || record.state == TaskState::Unreachable;
        let is_current = self.slots[&slot] == number;
        if has_ended && is_current {
            self.slots.insert(slot, number + 1);
            self.submit(slot);
        }
        if !record.killing && (has_ended || !is_current) {
            self.scheduler.kill(vec![record.id.clone()], None);
        }
    }

    /// Handles events until exactly the wanted tasks run, according to both the journals and the
    /// scheduler, and that stays so for a moment.
    pub async fn run_until_settled(&mut self, what: &str, cluster: &Cluster) {
        let end = Instant::now() + TEST_TIMEOUT;
        let mut since = None;
        loop {
            self.handle_events(Duration::from_millis(50)).await;
            let running: Vec<String> = cluster
                .running_processes()
                .into_iter()
                .map(|process| process.task)
                .collect();
            let expected: Vec<String> = self.expected_tasks().into_iter().collect();
            let is_running = |task: &String| {
                let records = self.scheduler.tasks();
                records
                    .get(&TaskId::from(task.as_str()))
                    .is_some_and(|record| record.state == TaskState::Running)
            };
            if running != expected || !expected.iter().all(is_running) {
                since = None;
            } else if since.get_or_insert_with(Instant::now).elapsed() >= Duration::from_millis(400) {
                return;
            }
            assert!(
                Instant::now() < end,
                "{what}: wanted are {expected:?}, these run: {running:?}, and this is known: {:?}",
                self.scheduler.tasks()
            );
        }
    }
}

/// A fault with the parameters in `more`.
pub fn fault(name: &str, mut more: Value) -> Value {
    more["fault"] = json!(name);
    more
}
