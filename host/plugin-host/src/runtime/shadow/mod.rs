//! Shadow versions: a new version that receives a copy of calls until it is promoted.
//!
//! The serving version answers every call. For a sample of calls the arguments and the answer are
//! put into a bounded queue (full: dropped), and a task repeats the call on the shadow version and
//! compares. A shadow that is slow, fails or is wrong costs only its own processor time. It does no
//! input or output: a probe's attempt is replayed with the answers that the serving version
//! received.

pub(crate) mod calls;
mod compare;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use crate::{
    error::CallError,
    manifest::rollout::ShadowPlan,
    observe::{health::Generation, metrics::ShadowMetrics, status::Difference},
    runtime::{
        engine::{Reply, World},
        pool::{Runtime, Version},
        recording::ObservedCall,
        version_context::seconds_now,
    },
};

/// Queued samples.
const QUEUE: usize = 64;
/// Differences shown.
const SHOWN: usize = 16;
/// Interval of the check for promotion.
const TICK: Duration = Duration::from_secs(1);

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Same,
    Different(Difference),
    /// The data has changed since.
    Stale,
}

/// A world whose results can be compared.
pub(crate) trait Comparable: World {
    /// A call and its result.
    type Sample: Send + 'static;

    /// Repeats the call on `version` and compares.
    fn compare(
        version: &Version<Self>,
        sample: Self::Sample,
    ) -> impl Future<Output = Result<Comparison, CallError>> + Send;
}

/// A call that can be repeated on a shadow version.
pub(crate) trait RepeatableCall<W: Comparable>: Clone + Send {
    /// The result.
    type Answer: Clone + Send;

    /// The instance to prefer, because it has an agent set or a query open. None: any.
    fn preferred_instance(&self) -> Option<usize> {
        None
    }

    fn call(self, reply: Reply<Self::Answer>) -> W::Call;

    /// The call with the serving version's answer, for the comparison.
    fn sample(self, serving: Self::Answer) -> W::Sample;

    /// The call for the call log. None: it ended in a fault.
    fn observed(self, answer: Option<Self::Answer>) -> ObservedCall;
}

/// Runs a call on a version.
pub(crate) async fn repeat<W: Comparable, C: RepeatableCall<W>>(
    version: &Version<W>,
    call: C,
) -> Result<C::Answer, CallError> {
    let mut instance = match call.preferred_instance() {
        Some(preferred) => version.near(preferred),
        None => version.least_loaded(),
    };
    version.ask(&mut instance, |reply| call.call(reply)).await
}

/// A shadow version met its plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShadowAgreed {
    pub(crate) plugin: String,
    pub(crate) generation: Generation,
    /// For an operator.
    pub(crate) reason: String,
}

/// The comparison results of a shadow version.
#[derive(Debug)]
pub(crate) struct ShadowStats {
    pub(crate) since: u64,
    began: Instant,
    pub(crate) plan: ShadowPlan,
    pub(crate) auto: bool,
    pub(crate) generation: Generation,
    pub(crate) compared: AtomicU64,
    pub(crate) differences: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) dropped: AtomicU64,
    shown: Mutex<VecDeque<Difference>>,
    metrics: ShadowMetrics,
}

impl ShadowStats {
    pub(crate) fn new(
        plan: ShadowPlan,
        auto: bool,
        generation: Generation,
        metrics: ShadowMetrics,
    ) -> ShadowStats {
        ShadowStats {
            since: seconds_now(),
            began: Instant::now(),
            plan,
            auto,
            generation,
            compared: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            shown: Mutex::default(),
            metrics,
        }
    }

    /// The newest differences, oldest first.
    pub(crate) fn shown(&self) -> Vec<Difference> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.iter().cloned().collect()
    }

    fn drop_one(&self) {
        self.dropped.fetch_add(1, Relaxed);
        self.metrics.dropped.inc();
    }

    fn note(&self, compared: Result<Comparison, CallError>) {
        let difference = match compared {
            Ok(Comparison::Stale) | Err(CallError::Busy { .. } | CallError::Stopped) => {
                return self.drop_one();
            }
            Ok(Comparison::Same) => {
                self.metrics.same.inc();
                self.compared.fetch_add(1, Relaxed);
                return;
            }
            Ok(Comparison::Different(difference)) => {
                self.metrics.different.inc();
                self.differences.fetch_add(1, Relaxed);
                difference
            }
            Err(error) => {
                self.metrics.failed.inc();
                self.failures.fetch_add(1, Relaxed);
                Difference {
                    question: String::new(),
                    serving: "an answer".to_owned(),
                    shadow: error.to_string(),
                }
            }
        };
        self.compared.fetch_add(1, Relaxed);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.len() == SHOWN {
            shown.pop_front();
        }
        shown.push_back(difference);
    }

    /// Whether it has shown by now that it may serve.
    fn has_agreed(&self) -> bool {
        agreed(
            self.plan,
            self.began.elapsed(),
            self.compared.load(Relaxed),
            self.differences.load(Relaxed),
            self.failures.load(Relaxed),
        )
    }
}

/// The rule, without a clock.
fn agreed(plan: ShadowPlan, age: Duration, compared: u64, differences: u64, failures: u64) -> bool {
    age >= plan.min_duration
        && compared >= plan.min_calls
        && differences <= plan.max_differences
        && failures == 0
}

/// The queue of a shadow version. Dropping it stops the comparison.
pub(crate) struct Shadow<W: Comparable> {
    pub(crate) version: Arc<Version<W>>,
    pub(crate) stats: Arc<ShadowStats>,
    queue: mpsc::Sender<W::Sample>,
    calls: AtomicU64,
}

impl<W: Comparable> Shadow<W> {
    /// `agreed`: receives an event when the plan is met, if the promotion is automatic.
    pub(crate) fn start(
        runtime: &Runtime,
        version: Arc<Version<W>>,
        stats: Arc<ShadowStats>,
        agreed: mpsc::Sender<ShadowAgreed>,
    ) -> Shadow<W> {
        let (queue, samples) = mpsc::channel(QUEUE);
        let token = runtime.token.clone();
        let work = follow(Arc::clone(&version), Arc::clone(&stats), samples, agreed);
        runtime.tracker.spawn(async move {
            token.run_until_cancelled(work).await;
        });
        Shadow {
            version,
            stats,
            queue,
            calls: AtomicU64::new(0),
        }
    }

    /// Counts a call; true for as many of a hundred as the plan says, evenly.
    pub(super) fn wants(&self) -> bool {
        let call = self.calls.fetch_add(1, Relaxed);
        is_sampled(call, self.stats.plan.sample_percent)
    }

    /// Hands a sample over, unless too many wait.
    pub(crate) fn submit(&self, sample: W::Sample) {
        if self.queue.try_send(sample).is_err() {
            self.stats.drop_one();
        }
    }
}

/// Chooses so many of a hundred calls, evenly.
pub(crate) fn is_sampled(call: u64, per_cent: u64) -> bool {
    let call = call % 100;
    call * per_cent / 100 != (call + 1) * per_cent / 100
}

/// Compares, until the way to it is gone.
async fn follow<W: Comparable>(
    version: Arc<Version<W>>,
    stats: Arc<ShadowStats>,
    mut samples: mpsc::Receiver<W::Sample>,
    agreed: mpsc::Sender<ShadowAgreed>,
) {
    let mut tick = tokio::time::interval(TICK.min(stats.plan.min_duration));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asked = false;
    loop {
        tokio::select! {
            sample = samples.recv() => match sample {
                Some(sample) => stats.note(W::compare(&version, sample).await),
                None => return,
            },
            _ = tick.tick() => {}
        }
        if stats.auto && !asked && stats.has_agreed() {
            let event = ShadowAgreed {
                plugin: version.context.name.clone(),
                generation: stats.generation,
                reason: format!("it agreed in {} answers", stats.compared.load(Relaxed)),
            };
            // If the queue is full, the next tick sends it again.
            asked = agreed.try_send(event).is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: ShadowPlan = ShadowPlan {
        min_duration: Duration::from_mins(1),
        min_calls: 10,
        sample_percent: 100,
        max_differences: 1,
    };

    #[test]
    fn shadow_is_promoted_when_the_plan_is_met() {
        for (seconds, compared, differences, failures, expected) in [
            (60, 10, 0, 0, true),
            (59, 10, 0, 0, false),
            (60, 9, 0, 0, false),
            (600, 1000, 1, 0, true),
            (600, 1000, 2, 0, false),
            (600, 1000, 0, 1, false),
        ] {
            let age = Duration::from_secs(seconds);
            assert_eq!(
                agreed(PLAN, age, compared, differences, failures),
                expected,
                "{seconds} s, {compared} compared, {differences} different, {failures} failed"
            );
        }
    }

    #[test]
    fn sampling_matches_the_percentage() {
        for per_cent in [1, 7, 50, 99, 100] {
            let chosen = (0..1000).filter(|call| is_sampled(*call, per_cent)).count() as u64;
            assert_eq!(chosen, per_cent * 10, "{per_cent} %");
        }
    }

    #[test]
    fn all_differences_are_counted_and_the_latest_are_shown() {
        let metrics =
            crate::observe::metrics::Metrics::register(&mut prometheus_client::registry::Registry::default());
        let stats = ShadowStats::new(PLAN, true, Generation::next(), metrics.shadow("p"));
        for n in 0..50 {
            let difference = Difference {
                question: n.to_string(),
                serving: String::new(),
                shadow: String::new(),
            };
            stats.note(Ok(Comparison::Different(difference)));
        }
        stats.note(Ok(Comparison::Stale));
        stats.note(Err(CallError::Stopped));
        let shown = stats.shown();
        assert_eq!((shown.len(), shown[0].question.as_str()), (SHOWN, "34"));
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        assert_eq!(count(&stats.differences), 50);
        assert_eq!(
            (
                count(&stats.compared),
                count(&stats.dropped),
                count(&stats.failures)
            ),
            (50, 2, 0)
        );
    }
}
