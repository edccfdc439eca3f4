//! What the benchmark reaches of the inside (feature `bench`). No part of the interface.

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
use transom_plugins::CallError;
use transom_plugins::matcher::{Agent, AgentSet, Candidate, Task, Verdict};
use transom_store::Store;

use crate::agents::Agents;
use crate::arbiter::Arbiter;
use crate::ledger::Ledger;
use crate::matcher::Matcher;
use crate::matching::{Bin, Need, Offers};
use crate::queue::Queue;
use crate::retry::Backoff;
use crate::round::Round;
use crate::{Result, RunSpec, TaskRecord, Tasks, Wanted};

/// The matcher's questions, answered without a component.
pub trait Rules: Send {
    /// See [`AgentSet::update`].
    fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>);
    /// See [`AgentSet::evaluate`].
    fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Vec<Verdict>;
    /// See [`AgentSet::place`].
    fn place(&mut self, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32>;
}

/// Who is asked.
#[expect(missing_debug_implementations, reason = "rules need not have one")]
pub enum Who {
    /// The component.
    Component(AgentSet),
    /// The same rules, called.
    Native(Box<dyn Rules>),
}

/// Measures the time from question to answer.
struct Timed {
    who: Who,
    spent: Arc<Spent>,
}

/// What was spent on questions.
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

    /// How many, and how long they took; counts anew.
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
            Who::Component(agent_set) => agent_set.update(changed, gone),
            Who::Native(rules) => rules.update(changed, gone),
        }
    }

    async fn evaluate(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
    ) -> std::result::Result<Vec<Verdict>, CallError> {
        let since = Instant::now();
        let verdicts = match &mut self.who {
            Who::Component(agent_set) => agent_set.evaluate(task, candidates).await,
            Who::Native(rules) => Ok(rules.evaluate(task, candidates)),
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
            Who::Component(agent_set) => agent_set.place(task, candidates, count).await,
            Who::Native(rules) => Ok(rules.place(task, candidates, count)),
        };
        self.spent.add(since);
        chosen
    }
}

/// Offers, and somebody to ask.
#[expect(missing_debug_implementations, reason = "rules need not have one")]
pub struct Site {
    bins: Vec<Bin>,
    arbiter: Arbiter,
    rng: StdRng,
    spent: Arc<Spent>,
}

/// How a round went.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Tasks that have found a place.
    pub placed: usize,
    /// From the queue to the plan.
    pub took: Duration,
    /// The part of it that was spent asking.
    pub asking: Duration,
    /// So often.
    pub questions: u64,
}

impl Site {
    /// Takes all offers in.
    pub fn new(offers: &[v1::Offer], who: Who) -> Self {
        let (mut agents, mut bins, now) = (Agents::default(), Vec::new(), Instant::now());
        for offer in offers {
            bins.extend(agents.offered(offer, now).map(|agent| Bin::new(offer, agent)));
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
        let mut arbiter = Arbiter::new(Box::new(timed), backoff, Counter::default());
        let (changed, gone) = agents.take_news();
        arbiter.update(changed, gone);
        Self {
            bins,
            arbiter,
            rng: StdRng::seed_from_u64(1),
            spent,
        }
    }

    /// How long the matcher takes to evaluate all agents for one more instance. The error is the matcher's.
    pub async fn evaluate(&mut self, spec: &RunSpec) -> std::result::Result<Duration, String> {
        let offers = Offers::new(self.bins.clone());
        let survey = offers.survey(&Need::of(spec, &["*".to_owned()]), 1, 0);
        let candidates = survey.candidates.iter();
        let candidates: Vec<_> = candidates
            .map(|&(agent, capacity)| Candidate { agent, capacity })
            .collect();
        let task = Task {
            run_spec: spec.id.clone(),
            instances: spec.instances,
            constraints: spec.conditions.clone(),
            ..Task::default()
        };
        self.spent.take();
        self.arbiter.judge(&task, &candidates).await?;
        Ok(self.spent.take().1)
    }

    /// One round over all offers, of which nothing is used up. The error is the matcher's.
    pub async fn round(&mut self, wanted: &[Wanted]) -> std::result::Result<Outcome, String> {
        let now = Timestamp::now();
        let mut queue = Queue::default();
        for wanted in wanted {
            queue.push(wanted.clone(), now);
        }
        self.spent.take();
        let since = Instant::now();
        let mut round = Round::new(self.bins.clone(), HashMap::new(), vec!["*".to_owned()], now);
        for lot in queue.ready(now) {
            let finding = round.place(&lot, &mut self.arbiter, &mut self.rng).await;
            if let Some(message) = finding.and_then(|finding| finding.message) {
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

/// Known tasks.
#[derive(Debug)]
pub struct Known(Ledger);

impl Known {
    /// Those of the store.
    pub async fn load(store: Arc<dyn Store>) -> Result<Self> {
        Ledger::load(store, "bench").await.map(Self)
    }

    /// Stores and keeps records, as those are kept that were read from the store.
    pub async fn add(&mut self, records: Vec<TaskRecord>) -> Result<()> {
        let records = records.into_iter().map(|record| self.0.share(record)).collect();
        self.0.commit(records).await
    }

    /// As readers see them.
    pub fn snapshot(&self) -> Arc<Tasks> {
        Arc::clone(self.0.records())
    }
}
