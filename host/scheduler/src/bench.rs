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
    fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>);
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
struct Timed {
    who: MatcherKind,
    spent: Arc<Spent>,
}

/// The number and duration of calls.
#[derive(Debug, Default)]
struct Spent {
    questions: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Spent {
    fn add(&self, since: Instant) {
        let nanoseconds = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.questions.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns and resets the number and duration of calls.
    fn take(&self) -> (u64, Duration) {
        let nanoseconds = self.nanoseconds.swap(0, Ordering::Relaxed);
        (
            self.questions.swap(0, Ordering::Relaxed),
            Duration::from_nanos(nanoseconds),
        )
    }
}

#[async_trait]
impl Matcher for Timed {
    fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        match &mut self.who {
            MatcherKind::Component(agent_set) => agent_set.update(changed, gone),
            MatcherKind::Native(rules) => rules.update(changed, gone),
        }
    }

    async fn evaluate(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
    ) -> std::result::Result<Vec<Verdict>, CallError> {
        let since = Instant::now();
        let verdicts = match &mut self.who {
            MatcherKind::Component(agent_set) => agent_set.evaluate(task, candidates).await,
            MatcherKind::Native(rules) => Ok(rules.evaluate(task, candidates)),
        };
        self.spent.add(since);
        verdicts
    }

    async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> std::result::Result<Vec<u32>, CallError> {
        let since = Instant::now();
        let chosen = match &mut self.who {
            MatcherKind::Component(agent_set) => agent_set.place(task, candidates, count).await,
            MatcherKind::Native(rules) => Ok(rules.place(task, candidates, count)),
        };
        self.spent.add(since);
        chosen
    }

    async fn select_kills(&mut self, task: &Task, count: u32) -> std::result::Result<Vec<u32>, CallError> {
        match &mut self.who {
            MatcherKind::Component(agent_set) => agent_set.select_kills(task, count).await,
            MatcherKind::Native(_) => Ok(Vec::new()),
        }
    }

    fn explain(&self, task: Task) -> PendingExplanation {
        match &self.who {
            MatcherKind::Component(agent_set) => PendingExplanation::new(agent_set.explain(task)),
            MatcherKind::Native(_) => {
                PendingExplanation::new(std::future::ready(MatcherExplanation::default()))
            }
        }
    }
}

/// Offers and a matcher to measure.
#[expect(missing_debug_implementations, reason = "rules need not have one")]
pub struct Site {
    bins: Vec<OpenOffer>,
    matcher: MatcherClient,
    rng: StdRng,
    spent: Arc<Spent>,
}

/// The result of a round.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Number of placed tasks.
    pub placed: usize,
    /// Time from the queue to the plan.
    pub took: Duration,
    /// The part of that time spent in calls of the matcher.
    pub asking: Duration,
    /// Number of calls of the matcher.
    pub questions: u64,
}

impl Site {
    /// Creates a site with these offers.
    pub fn new(offers: &[v1::Offer], who: MatcherKind) -> Self {
        let (mut agents, mut bins, now) = (Agents::default(), Vec::new(), Instant::now());
        for offer in offers {
            bins.extend(
                agents
                    .offered(offer, now)
                    .map(|agent| OpenOffer::new(offer, agent)),
            );
        }
        let spent = Arc::new(Spent::default());
        let timed = Timed {
            who,
            spent: Arc::clone(&spent),
        };
        let backoff = Backoff {
            base: Duration::ZERO,
            max: Duration::ZERO,
        };
        let mut matcher = MatcherClient::new(Box::new(timed), backoff, Counter::default());
        let (changed, gone) = agents.take_changes();
        matcher.update(changed, gone);
        Self {
            bins,
            matcher,
            rng: StdRng::seed_from_u64(1),
            spent,
        }
    }

    /// Measures how long the matcher takes to evaluate all agents for one more instance. The error
    /// is the matcher's.
    pub async fn evaluate(&mut self, spec: &RunSpec) -> std::result::Result<Duration, String> {
        let offers = Offers::new(self.bins.clone());
        let survey = offers.scan(&Requirements::of(spec, &["*".to_owned()]), 1, 0);
        let candidates = survey.candidates.iter();
        let candidates: Vec<_> = candidates
            .map(|&(agent, capacity)| Candidate { agent, capacity })
            .collect();
        let task = Task {
            run_spec: spec.id.clone(),
            instances: spec.instances,
            constraints: spec.constraints.clone(),
            ..Task::default()
        };
        self.spent.take();
        self.matcher.judge(&task, &candidates).await?;
        Ok(self.spent.take().1)
    }

    /// Matches these tasks with all offers in one round. Repeated calls start with the same offers.
    /// The error is the matcher's.
    pub async fn round(&mut self, wanted: &[TaskRequest]) -> std::result::Result<Outcome, String> {
        let now = Timestamp::now();
        let mut queue = Queue::default();
        for wanted in wanted {
            queue.push(wanted.clone(), now);
        }
        self.spent.take();
        let since = Instant::now();
        let mut round = Round::new(self.bins.clone(), HashMap::new(), vec!["*".to_owned()], now);
        for batch in queue.ready(now) {
            let failure = round.place(&batch, &mut self.matcher, &mut self.rng).await;
            if let Some(message) = failure.and_then(|failure| failure.message) {
                return Err(message);
            }
        }
        let placed = round.into_planned().len();
        let took = since.elapsed();
        let (questions, asking) = self.spent.take();
        Ok(Outcome {
            placed,
            took,
            asking,
            questions,
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
