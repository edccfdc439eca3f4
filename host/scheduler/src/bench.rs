//! Access to internals for the benchmarks (feature `bench`). Not part of the interface.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::Instant;
use transom_cluster::v1;
use transom_common::Backoff;
use transom_plugin_host::CallError;
use transom_plugin_host::explain::MatcherExplanation;
use transom_plugin_host::matcher::{Agent, AgentSet, Candidate, Task, Verdict};
use transom_store::Store;

use crate::matching::agents::Agents;
use crate::matching::matcher::Matcher;
use crate::matching::matcher_client::MatcherClient;
use crate::matching::queue::Queue;
use crate::matching::round::Round;
use crate::matching::{Offers, OpenOffer, Requirements};
use crate::store::ledger::Ledger;
use crate::{PendingExplanation, Result, RunSpec, TaskRecord, TaskRequest, Tasks};

/// The calls of the matcher, answered without a component.
pub trait Rules: Send {
    /// See [`AgentSet::update`].
    fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>);
    /// See [`AgentSet::evaluate`].
    fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Vec<Verdict>;
    /// See [`AgentSet::place`].
    fn place(&mut self, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32>;
}

/// The matcher to measure.
#[expect(missing_debug_implementations, reason = "rules need not have one")]
pub enum MatcherKind {
    /// The matcher component.
    Component(AgentSet),
    /// The same rules, called natively.
    Native(Box<dyn Rules>),
}

/// Measures the duration of each call.
struct TimedMatcher {
    matcher: MatcherKind,
    call_times: Arc<CallTimes>,
}

/// The number and duration of calls.
#[derive(Debug, Default)]
struct CallTimes {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
}

impl CallTimes {
    fn add(&self, started_at: Instant) {
        let nanoseconds = u64::try_from(started_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns and resets the number and duration of calls.
    fn take(&self) -> (u64, Duration) {
        let nanoseconds = self.nanoseconds.swap(0, Ordering::Relaxed);
        (
            self.calls.swap(0, Ordering::Relaxed),
            Duration::from_nanos(nanoseconds),
        )
    }
}

#[async_trait]
impl Matcher for TimedMatcher {
    fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>) {
        match &mut self.matcher {
            MatcherKind::Component(agent_set) => agent_set.update(changed, removed),
            MatcherKind::Native(rules) => rules.update(changed, removed),
        }
    }

    async fn evaluate(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
    ) -> std::result::Result<Vec<Verdict>, CallError> {
        let started_at = Instant::now();
        let verdicts = match &mut self.matcher {
            MatcherKind::Component(agent_set) => agent_set.evaluate(task, candidates).await,
            MatcherKind::Native(rules) => Ok(rules.evaluate(task, candidates)),
        };
        self.call_times.add(started_at);
        verdicts
    }

    async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> std::result::Result<Vec<u32>, CallError> {
        let started_at = Instant::now();
        let chosen = match &mut self.matcher {
            MatcherKind::Component(agent_set) => agent_set.place(task, candidates, count).await,
            MatcherKind::Native(rules) => Ok(rules.place(task, candidates, count)),
        };
        self.call_times.add(started_at);
        chosen
    }

    async fn select_kills(&mut self, task: &Task, count: u32) -> std::result::Result<Vec<u32>, CallError> {
        match &mut self.matcher {
            MatcherKind::Component(agent_set) => agent_set.select_kills(task, count).await,
            MatcherKind::Native(_) => Ok(Vec::new()),
        }
    }

    fn explain(&self, task: Task) -> PendingExplanation {
        match &self.matcher {
            MatcherKind::Component(agent_set) => PendingExplanation::new(agent_set.explain(task)),
            MatcherKind::Native(_) => {
                PendingExplanation::new(std::future::ready(MatcherExplanation::default()))
            }
        }
    }
}

/// Offers and a matcher to measure.
#[expect(missing_debug_implementations, reason = "rules need not have one")]
pub struct BenchCluster {
    open_offers: Vec<OpenOffer>,
    matcher: MatcherClient,
    rng: StdRng,
    call_times: Arc<CallTimes>,
}

/// The result of a round.
#[derive(Clone, Copy, Debug)]
pub struct RoundResult {
    /// Number of placed tasks.
    pub placed: usize,
    /// Time from the queue to the plan.
    pub duration: Duration,
    /// The part of that time spent in calls of the matcher.
    pub matcher_time: Duration,
    /// Number of calls of the matcher.
    pub calls: u64,
}

impl BenchCluster {
    /// Creates a site with these offers.
    pub fn new(offers: &[v1::Offer], matcher: MatcherKind) -> Self {
        let (mut agents, mut open_offers, now) = (Agents::default(), Vec::new(), Instant::now());
        for offer in offers {
            open_offers.extend(
                agents
                    .handle_of_offer(offer, now)
                    .map(|agent| OpenOffer::new(offer, agent)),
            );
        }
        let call_times = Arc::new(CallTimes::default());
        let timed = TimedMatcher {
            matcher,
            call_times: Arc::clone(&call_times),
        };
        let backoff = Backoff {
            base: Duration::ZERO,
            max: Duration::ZERO,
        };
        let mut matcher = MatcherClient::new(Box::new(timed), backoff, Counter::default());
        let (changed, removed) = agents.take_changes();
        matcher.update(changed, removed);
        Self {
            open_offers,
            matcher,
            rng: StdRng::seed_from_u64(1),
            call_times,
        }
    }

    /// Measures how long the matcher takes to evaluate all agents for one more instance. The error
    /// is the matcher's.
    pub async fn evaluate(&mut self, spec: &RunSpec) -> std::result::Result<Duration, String> {
        let offers = Offers::new(self.open_offers.clone());
        let scan = offers.scan(&Requirements::of(spec, &["*".to_owned()]), 1, 0);
        let candidates = scan.candidates.iter();
        let candidates: Vec<_> = candidates
            .map(|&(agent, capacity)| Candidate { agent, capacity })
            .collect();
        let task = Task {
            run_spec: spec.id.clone(),
            instances: spec.instances,
            constraints: spec.constraints.clone(),
            ..Task::default()
        };
        self.call_times.take();
        self.matcher.evaluate(&task, &candidates).await?;
        Ok(self.call_times.take().1)
    }

    /// Matches these tasks with all offers in one round. Repeated calls start with the same offers.
    /// The error is the matcher's.
    pub async fn round(&mut self, requests: &[TaskRequest]) -> std::result::Result<RoundResult, String> {
        let now = Timestamp::now();
        let mut queue = Queue::default();
        for request in requests {
            queue.push(request.clone(), now);
        }
        self.call_times.take();
        let started_at = Instant::now();
        let mut round = Round::new(
            self.open_offers.clone(),
            HashMap::new(),
            vec!["*".to_owned()],
            now,
        );
        let mut ready = queue.ready(now, |_| false);
        while let Some(batch) = queue.next_batch(&mut ready, now) {
            let failure = round.place(&batch, &mut self.matcher, &mut self.rng).await;
            if let Some(message) = failure.and_then(|failure| failure.message) {
                return Err(message);
            }
        }
        let placed = round.into_planned().len();
        let duration = started_at.elapsed();
        let (calls, matcher_time) = self.call_times.take();
        Ok(RoundResult {
            placed,
            duration,
            matcher_time,
            calls,
        })
    }
}

/// The task records of a ledger.
#[derive(Debug)]
pub struct StoredTasks(Ledger);

impl StoredTasks {
    /// Loads the records of a store.
    pub async fn load(store: Arc<dyn Store>) -> Result<Self> {
        Ledger::load(store, "bench").await.map(Self)
    }

    /// Stores records and interns them as the ledger does when it loads them.
    pub async fn add(&mut self, records: Vec<TaskRecord>) -> Result<()> {
        let records = records.into_iter().map(|record| self.0.intern(record)).collect();
        self.0.commit(records).await
    }

    /// The snapshot for readers.
    pub fn snapshot(&self) -> Arc<Tasks> {
        Arc::clone(self.0.records())
    }
}
