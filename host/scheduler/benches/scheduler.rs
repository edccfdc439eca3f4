//! Measures how long a matching round takes on a large cluster, with the attribute matcher as a
//! component and with the same rules called natively; and how much memory the records of known
//! tasks take. Prints one JSON document. Run by `cargo xtask bench scheduler`.
//!
//! Both kinds of rules are measured in the same process, in alternating rounds. The times depend on
//! the machine and its load, but their ratio does not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark that fails may panic"
)]

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use attributes::Attributes;
use attributes::agents::Agents;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use transom_cluster::v1;
use transom_common::trace::TraceContext;
use transom_plugin_host::Plugins;
use transom_plugin_host::matcher::{Agent, AttributeValue, Candidate, Constraint, Task, Verdict};
use transom_scheduler::bench::{BenchCluster, MatcherKind, RoundResult, Rules, StoredTasks};
use transom_scheduler::{BuildTask, Placement, PortRequest, RunSpec, TaskRecord, TaskRequest};
use transom_sdk::matcher::{self as sdk, AgentSet as _, Matcher as _};
use transom_store::{Batch, Entry, Store};
use transom_testkit::usage;

const AGENTS: u32 = 10_000;
const TASKS: u32 = 1_000;
const KNOWN_TASKS: u32 = 100_000;
/// Rounds of each kind, of which the median is reported.
const ROUNDS: usize = 7;
/// Evaluations of all agents, of which the median is reported.
const EVALUATIONS: usize = 21;

fn main() {
    // The benchmark runs on a worker thread of the runtime, as the actor does. On the main thread,
    // `block_on` would have to be woken from another thread, which takes longer than one call of
    // the matcher. One worker keeps the native rules in the thread that created them.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let measuring = runtime.spawn(async {
        // This is measured first, before other code has allocated memory.
        let memory = memory().await;
        let (evaluation, matching) = matching().await;
        json!({"agents": AGENTS, "tasks": TASKS, "judging": evaluation, "matching": matching, "memory": memory})
    });
    let document = runtime.block_on(measuring).unwrap();
    println!("{document:#}");
}

// --- Matching

/// An agent of 16 CPUs and 8 attributes.
fn offer(n: u32) -> v1::Offer {
    let text = |name: &str, value: String| v1::Attribute::text(name, value);
    v1::Offer {
        id: format!("5f0c7d5e-3a5e-4c1e-9d5b-0f6a1c0d7e11-O{n}")
            .as_str()
            .into(),
        framework_id: "f".into(),
        agent_id: format!("5f0c7d5e-3a5e-4c1e-9d5b-0f6a1c0d7e11-S{n}")
            .as_str()
            .into(),
        hostname: format!("node-{n}.cluster.example"),
        resources: vec![
            v1::Resource::scalar("cpus", 16.0),
            v1::Resource::scalar("mem", 65_536.0),
            v1::Resource::scalar("disk", 500_000.0),
            v1::Resource::ranges("ports", &[(31_000, 32_000)]),
        ],
        attributes: vec![
            text("rack", format!("r{}", n % 200)),
            text("row", format!("w{}", n % 20)),
            text("class", ["web", "batch", "db", "web"][n as usize % 4].to_owned()),
            text("kernel", format!("6.{}.0", n % 5)),
            text("disk", ["ssd", "hdd"][n as usize % 2].to_owned()),
            text("owner", format!("team-{}", n % 30)),
            text("generation", (n % 7).to_string()),
            text("site", "east".to_owned()),
        ],
        ..v1::Offer::default()
    }
}

#[derive(Debug)]
struct EmptyTask;

impl BuildTask for EmptyTask {
    fn build(&self, _placement: &Placement) -> Option<v1::TaskInfo> {
        Some(v1::TaskInfo::default())
    }
}

/// `TASKS` tasks of this number of run specs, each with its own constraints.
fn task_requests(specs: u32, constraints: impl Fn(u32) -> Vec<Constraint>) -> Vec<TaskRequest> {
    let spec = |n| {
        Arc::new(RunSpec {
            id: format!("/bench/{n}"),
            version: "1".to_owned(),
            instances: TASKS / specs,
            cpus: 0.5,
            mem: 256.0,
            disk: 0.0,
            gpus: 0.0,
            avoid_gpus: false,
            ports: vec![PortRequest::Random],
            constraints: constraints(n),
            role: None,
            volumes: Vec::new(),
            roles: Vec::new(),
            executor: transom_scheduler::ExecutorResources::default(),
            build: Arc::new(EmptyTask).into(),
        })
    };
    let specs: Vec<_> = (0..specs).map(spec).collect();
    (0..TASKS)
        .zip(specs.iter().cycle())
        .map(|(n, spec)| TaskRequest {
            id: format!("bench.{n}").as_str().into(),
            spec: Arc::clone(spec),
            not_before: None,
            priority: 0,
            reservation: None,
            trace: TraceContext::default(),
        })
        .collect()
}

fn constraint(field: &str, operator: &str, operand: Option<&str>) -> Constraint {
    Constraint::Field {
        field: field.to_owned(),
        operator: operator.to_owned(),
        operand: operand.map(str::to_owned),
    }
}

/// Constraints on class, racks and distinct hosts, which a quarter of the agents satisfy.
fn quarter_constraints() -> Vec<Constraint> {
    vec![
        constraint("class", "IS", Some("web")),
        constraint("rack", "LIKE", Some("r[0-9]*[02468]")),
        constraint("@hostname", "UNIQUE", None),
    ]
}

/// Constraints on one rack, which few agents satisfy.
fn rack_constraints() -> Vec<Constraint> {
    vec![
        constraint("rack", "IS", Some("r199")),
        constraint("class", "UNLIKE", Some("batch")),
    ]
}

/// A constraint that one agent satisfies, a different one for each run spec.
fn agent_constraints(n: u32) -> Vec<Constraint> {
    let hostname = format!("node-{}.cluster.example", (n * 7 + 4999) % AGENTS);
    vec![constraint("@hostname", "IS", Some(&hostname))]
}

/// The ratio for evaluating all agents, and the results of the rounds.
async fn matching() -> (Value, Value) {
    let (dir, token) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let components = std::env::var_os("TRANSOM_COMPONENTS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/components"),
        PathBuf::from,
    );
    for file in ["attributes.wasm", "attributes.toml"] {
        std::fs::copy(components.join(file), dir.path().join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}; run `cargo xtask plugins` first"));
    }
    let config = transom_plugin_host::Config::new(dir.path());
    let plugins = config
        .start(&mut Registry::default(), token.clone())
        .await
        .unwrap();
    let offers: Vec<_> = (0..AGENTS).map(offer).collect();
    let mut cases = Vec::new();
    let evaluation = evaluation(
        &task_requests(1, |_| quarter_constraints())[0].spec,
        &offers,
        &plugins,
    )
    .await;
    for specs in [1, 100, TASKS] {
        for (name, requests) in [
            ("none", task_requests(specs, |_| Vec::new())),
            (
                "a quarter of the agents, the same for all",
                task_requests(specs, |_| quarter_constraints()),
            ),
            (
                "one rack, the same for all",
                task_requests(specs, |_| rack_constraints()),
            ),
        ] {
            cases.push(case(name, &requests, specs, &offers, &plugins).await);
        }
    }
    let requests = task_requests(TASKS, agent_constraints);
    cases.push(case("one agent, another for each", &requests, TASKS, &offers, &plugins).await);
    token.cancel();
    plugins.stopped().await;
    (evaluation, cases.into())
}

/// Evaluates all agents for one run spec with the component and with the same rules called natively.
async fn evaluation(spec: &RunSpec, offers: &[v1::Offer], plugins: &Plugins) -> Value {
    let mut component = BenchCluster::new(offers, MatcherKind::Component(plugins.agent_set(None)));
    let mut native = BenchCluster::new(offers, MatcherKind::Native(Box::new(Native::new())));
    component.evaluate(spec).await.unwrap();
    native.evaluate(spec).await.unwrap();
    let (mut component_times, mut native_times) = (Vec::new(), Vec::new());
    for _ in 0..EVALUATIONS {
        component_times.push(component.evaluate(spec).await.unwrap());
        native_times.push(native.evaluate(spec).await.unwrap());
    }
    let (component_times, native_times) = (median(component_times), median(native_times));
    json!({
        "component_ms": milliseconds(component_times),
        "native_ms": milliseconds(native_times),
        "ratio": ratio(component_times, native_times),
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn case(
    constraints: &str,
    requests: &[TaskRequest],
    specs: u32,
    offers: &[v1::Offer],
    plugins: &Plugins,
) -> Value {
    eprintln!("constraints: {constraints}, run specs: {specs}");
    let mut component = BenchCluster::new(offers, MatcherKind::Component(plugins.agent_set(None)));
    let mut native = BenchCluster::new(offers, MatcherKind::Native(Box::new(Native::new())));
    // The first round also sends all agents to the matcher.
    let first = component.round(requests).await.unwrap();
    native.round(requests).await.unwrap();
    let (mut component_times, mut native_times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        component_times.push(component.round(requests).await.unwrap());
        native_times.push(native.round(requests).await.unwrap());
    }
    assert_eq!(
        component_times[0].placed, native_times[0].placed,
        "the rules are the same"
    );
    let questions = component_times[0].calls;
    let (component_times, native_times) = (Median::of(&component_times), Median::of(&native_times));
    json!({
        "constraints": constraints,
        "run_specs": specs,
        "placed": first.placed,
        "questions": questions,
        "first_round_ms": milliseconds(first.duration),
        "component": component_times.document(),
        "native": native_times.document(),
        "ratio_of_rounds": ratio(component_times.duration, native_times.duration),
        "ratio_of_asking": ratio(component_times.matcher_time, native_times.matcher_time),
    })
}

struct Median {
    duration: Duration,
    matcher_time: Duration,
}

impl Median {
    fn of(outcomes: &[RoundResult]) -> Self {
        Self {
            duration: median(outcomes.iter().map(|outcome| outcome.duration).collect()),
            matcher_time: median(outcomes.iter().map(|outcome| outcome.matcher_time).collect()),
        }
    }

    fn document(&self) -> Value {
        json!({"round_ms": milliseconds(self.duration), "asking_ms": milliseconds(self.matcher_time)})
    }
}

/// A duration in milliseconds with a resolution of one microsecond.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn ratio(one: Duration, other: Duration) -> f64 {
    (one.as_secs_f64() / other.as_secs_f64() * 100.0).round() / 100.0
}

thread_local! {
    /// The agents of the native rules. The rules share patterns by `Rc`, so they must stay in the
    /// thread that created them. That thread runs the rounds, because a native round never waits.
    static AGENT_SET: RefCell<Option<Agents>> = const { RefCell::new(None) };
}

/// The rules of the component, called natively.
struct Native;

impl Native {
    fn new() -> Self {
        let plugin = transom_sdk::testing::plugin::<Attributes>("{}").unwrap();
        AGENT_SET.set(Some(plugin.agent_set(None)));
        Self
    }

    fn with<T>(call: impl FnOnce(&mut Agents) -> T) -> T {
        AGENT_SET.with_borrow_mut(|agent_set| call(agent_set.as_mut().unwrap()))
    }
}

impl Rules for Native {
    fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>) {
        let changed = changed.into_iter().map(agent).collect();
        Self::with(|agent_set| agent_set.update(changed, removed));
    }

    fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Vec<Verdict> {
        let verdict = |verdict: sdk::Verdict| match verdict {
            sdk::Verdict::Fits => Verdict::Fits,
            sdk::Verdict::Refused(constraint) => Verdict::Refused(constraint),
        };
        let verdicts =
            Self::with(|agent_set| agent_set.evaluate(&sdk_task(task), &sdk_candidates(candidates)));
        verdicts.into_iter().map(verdict).collect()
    }

    fn place(&mut self, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32> {
        Self::with(|agent_set| agent_set.place(&sdk_task(task), &sdk_candidates(candidates), count))
    }
}

fn agent(agent: Agent) -> sdk::Agent {
    let value = |value| match value {
        AttributeValue::Text(text) => sdk::Value::Text(text),
        other => panic!("{other:?}: the agents here have texts only"),
    };
    let attributes = agent.attributes.into_iter().map(|attribute| sdk::Attribute {
        name: attribute.name,
        value: value(attribute.value),
    });
    sdk::Agent {
        handle: agent.handle,
        id: agent.id,
        hostname: agent.hostname,
        region: agent.region,
        zone: agent.zone,
        attributes: attributes.collect(),
        extensions: agent.extensions,
    }
}

fn sdk_task(task: &Task) -> sdk::Task {
    let constraint = |constraint: &Constraint| match constraint.clone() {
        Constraint::Expression(text) => sdk::Constraint::Expression(text),
        Constraint::Field {
            field,
            operator,
            operand,
        } => sdk::Constraint::Field(sdk::FieldConstraint {
            field,
            operator,
            operand,
        }),
    };
    sdk::Task {
        run_spec: task.run_spec.clone(),
        instances: task.instances,
        constraints: task.constraints.iter().map(constraint).collect(),
        placed: task.placed.clone(),
        extensions: task.extensions.clone(),
    }
}

fn sdk_candidates(candidates: &[Candidate]) -> Vec<sdk::Candidate> {
    candidates
        .iter()
        .map(|candidate| sdk::Candidate {
            agent: candidate.agent,
            capacity: candidate.capacity,
        })
        .collect()
}

// --- Memory

/// A store that accepts every write and keeps nothing, so that only the scheduler's memory is
/// measured.
#[derive(Debug)]
struct NullStore;

#[async_trait]
impl Store for NullStore {
    async fn get(&self, _key: &str) -> transom_store::Result<Option<Entry>> {
        Ok(None)
    }

    async fn scan(&self, _prefix: &str) -> transom_store::Result<Vec<Entry>> {
        Ok(Vec::new())
    }

    async fn commit(&self, batch: Batch) -> transom_store::Result<Vec<u64>> {
        Ok(vec![1; batch.changes().len()])
    }
}

/// The record of a running app's task, decoded from JSON as after a restart.
fn record(n: u32) -> TaskRecord {
    let task = format!("shop_web.instance-7a1f{n:08x}-c0de-11f1-9e2a-0242ac110002._app.1");
    let agent = format!("5f0c7d5e-3a5e-4c1e-9d5b-0f6a1c0d7e11-S{}", n % AGENTS);
    let at = "2026-11-20T10:00:00Z";
    let attributes: Vec<v1::Attribute> = offer(n % AGENTS).attributes;
    let status = json!({
        "task_id": {"value": task}, "state": "TASK_RUNNING", "agent_id": {"value": agent},
        "executor_id": {"value": task}, "source": "SOURCE_EXECUTOR", "timestamp": 1_795_168_800.25,
        "uuid": "q1Yc2kPBQ8mkE0kYbqS0hA==", "healthy": true,
        "check_status": {"type": "HTTP", "http": {"status_code": 200}},
        "container_status": {
            "container_id": {"value": "0f1b6c1e-2c69-4e0b-8a6f-3a5a3f1f7e11"},
            "network_infos": [{"ip_addresses": [{"protocol": "IPv4", "ip_address": "10.1.2.3"}]}],
        },
    });
    let record = json!({
        "id": {"value": task}, "run_spec": "/shop/web", "version": at,
        "agent": {"id": {"value": agent}, "hostname": format!("node-{}.cluster.example", n % AGENTS),
            "region": "east", "zone": "east-1", "endpoint": ["10.1.2.3", 5051]},
        "agent_attributes": attributes, "host_ports": [31_000, 31_001], "phase": "Launched",
        "state": "TASK_RUNNING", "status": status, "intended_at": at, "staged_at": at, "started_at": at,
        "updated_at": at, "metadata": {"incarnation": 1},
    });
    serde_json::from_str(&record.to_string()).unwrap()
}

async fn memory() -> Value {
    eprintln!("memory of {KNOWN_TASKS} known tasks");
    let mut stored_tasks = StoredTasks::load(Arc::new(NullStore)).await.unwrap();
    stored_tasks.add(vec![record(KNOWN_TASKS)]).await.unwrap();
    let before = usage::resident_kib(std::process::id());
    for chunk in 0..KNOWN_TASKS / 1000 {
        let records = (chunk * 1000..(chunk + 1) * 1000).map(record).collect();
        stored_tasks.add(records).await.unwrap();
    }
    let after = usage::resident_kib(std::process::id());
    assert_eq!(stored_tasks.snapshot().len(), KNOWN_TASKS as usize + 1);
    // While a reader still holds the last snapshot, the first change has to create a new one.
    let mut changes: Vec<Duration> = Vec::new();
    for n in 0..ROUNDS as u32 {
        let (reader, change) = (stored_tasks.snapshot(), record(n));
        let since = std::time::Instant::now();
        stored_tasks.add(vec![change]).await.unwrap();
        changes.push(since.elapsed());
        drop(reader);
    }
    changes.sort_unstable();
    let delta = after.saturating_sub(before);
    json!({
        "known_tasks": KNOWN_TASKS,
        "before_kib": before,
        "after_kib": after,
        "delta_mib": (delta as f64 / 102.4).round() / 10.0,
        "bytes_per_task": delta * 1024 / u64::from(KNOWN_TASKS),
        "change_with_a_reader_ms": milliseconds(changes[ROUNDS / 2]),
    })
}
