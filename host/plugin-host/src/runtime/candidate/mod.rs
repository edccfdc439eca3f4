//! Candidates: versions that run alongside the serving one, as a shadow or as a canary.
//!
//! * A shadow answers no caller. A sample of the calls is repeated on it after the serving version
//!   has answered them.
//! * A canary answers a share of the calls, chosen by what they are about (see [`share`]). A sample
//!   of these is repeated on further instances of the serving version. If a call fails on the
//!   canary, the serving version answers it instead; a probe's attempt only before its first step.
//!
//! The sampled calls and their answers go through a bounded queue to a task that repeats and
//! compares; when the queue is full, a sample is dropped. The caller therefore waits neither for
//! the repetition nor for its faults. The repetition does no input or output: a probe's attempt is
//! replayed with the recorded answers to its steps. The task also judges the candidate (see
//! [`judgement`]) and reports the verdict to the directory.

mod judgement;
pub(crate) mod share;

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
    manifest::{limits::Instances, rollout::Plan},
    observe::{
        health::Generation,
        metrics::CandidateMetrics,
        status::{Difference, Rollout, RolloutKind},
        version_metrics::{TimeCounts, VersionMetrics},
    },
    runtime::{
        engine::World,
        pool::{ComponentInfo, Runtime, Version},
        recording::is_sampled,
        shadow::{Comparison, Sample},
        version_context::{VersionContext, seconds_now},
    },
};
use judgement::{Evidence, Judgement, Latency, judge};
use share::KeyHash;

/// Capacity of the queue of samples.
const QUEUE_CAPACITY: usize = 64;
/// Maximum number of differences shown.
const MAX_DIFFERENCES: usize = 16;
/// Interval between judgements.
const JUDGEMENT_INTERVAL: Duration = Duration::from_secs(1);

/// The judgement of a candidate, for the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CandidateJudged {
    pub(crate) plugin: String,
    pub(crate) generation: Generation,
    pub(crate) verdict: CandidateVerdict,
    /// The reason, for an operator.
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CandidateVerdict {
    /// It met all conditions of its plan.
    Agreed,
    /// It exceeds a limit.
    Failed,
}

/// How a candidate runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) plan: Plan,
    /// Whether the host promotes it.
    pub(crate) automatic: bool,
    pub(crate) generation: Generation,
}

impl Plan {
    pub(crate) fn kind(&self) -> RolloutKind {
        match self {
            Plan::Shadow(_) => RolloutKind::Shadow,
            Plan::Canary(_) => RolloutKind::Canary,
        }
    }

    /// Share of the calls that are repeated and compared: of its own calls for a canary, of the
    /// serving version's for a shadow.
    fn sample_percent(&self) -> u64 {
        match self {
            Plan::Shadow(plan) => plan.sample_percent,
            Plan::Canary(plan) => plan.compare_percent,
        }
    }

    fn min_calls(&self) -> u64 {
        match self {
            Plan::Shadow(plan) => plan.min_calls,
            Plan::Canary(plan) => plan.min_calls,
        }
    }

    fn min_duration(&self) -> Duration {
        match self {
            Plan::Shadow(plan) => plan.min_duration,
            Plan::Canary(plan) => plan.min_duration,
        }
    }
}

/// Counts and measurements of a candidate.
#[derive(Debug)]
pub(crate) struct CandidateStats {
    terms: Terms,
    since: u64,
    began: Instant,
    context: Arc<VersionContext>,
    serving: VersionMetrics,
    /// The histograms at the start: the candidate's, which includes its admission, and the serving
    /// version's.
    histograms_at_start: (TimeCounts, TimeCounts),
    answered: AtomicU64,
    compared: AtomicU64,
    differences: AtomicU64,
    /// Calls that failed on a shadow.
    failures: AtomicU64,
    dropped: AtomicU64,
    recent_differences: Mutex<VecDeque<Difference>>,
    metrics: CandidateMetrics,
}

impl CandidateStats {
    /// `context` belongs to the candidate, `serving` to the serving version.
    pub(crate) fn new(
        terms: Terms,
        context: Arc<VersionContext>,
        serving: VersionMetrics,
        metrics: CandidateMetrics,
    ) -> CandidateStats {
        CandidateStats {
            terms,
            since: seconds_now(),
            began: Instant::now(),
            histograms_at_start: (context.metrics.duration().counts(), serving.duration().counts()),
            context,
            serving,
            answered: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            recent_differences: Mutex::default(),
            metrics,
        }
    }

    /// Returns the candidate's state for an operator. `info` describes the candidate.
    pub(crate) fn rollout(&self, info: &ComponentInfo) -> Rollout {
        let (candidate, serving) = self.histograms();
        let micros = |times: &TimeCounts| u64::try_from(times.at(990)?.as_micros()).ok();
        let evidence = self.evidence();
        let Judgement { mut missing, .. } = judge(&self.terms.plan, &evidence);
        if !self.terms.automatic {
            let name = &self.context.name;
            missing.push(format!(
                "promotion by an operator (transom plugin promote {name})"
            ));
        }
        Rollout {
            kind: self.terms.plan.kind(),
            version: info.version.clone(),
            digest: info.digest.clone(),
            since: self.since,
            automatic: self.terms.automatic,
            percent: match &self.terms.plan {
                Plan::Shadow(plan) => plan.sample_percent,
                Plan::Canary(plan) => plan.percent,
            },
            calls: evidence.answered,
            compared: evidence.compared,
            differences: evidence.differences,
            faults: evidence.faults,
            dropped: self.dropped.load(Relaxed),
            p99_micros: micros(&candidate),
            serving_p99_micros: micros(&serving),
            missing,
            samples: self.recent_differences(),
        }
    }

    /// The newest differences, oldest first.
    fn recent_differences(&self) -> Vec<Difference> {
        let recent_differences = self
            .recent_differences
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recent_differences.iter().cloned().collect()
    }

    fn add_difference(&self, difference: Difference) {
        let mut recent_differences = self
            .recent_differences
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if recent_differences.len() == MAX_DIFFERENCES {
            recent_differences.pop_front();
        }
        recent_differences.push_back(difference);
    }

    /// Counts a call that the candidate answered.
    pub(crate) fn count_answer(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    /// Counts a call that failed on the canary. The fault itself was counted in the canary's
    /// context.
    pub(crate) fn count_failure(&self) {
        self.metrics.failed.inc();
    }

    fn count_dropped(&self) {
        self.dropped.fetch_add(1, Relaxed);
        self.metrics.dropped.inc();
    }

    fn record_comparison(&self, compared: Result<Comparison, CallError>) {
        let is_shadow = self.terms.plan.kind() == RolloutKind::Shadow;
        match compared {
            Ok(Comparison::Stale) | Err(CallError::Busy { .. } | CallError::Stopped) => {
                return self.count_dropped();
            }
            Ok(Comparison::Same) => {
                self.metrics.same.inc();
            }
            Ok(Comparison::Different(difference)) => {
                self.metrics.different.inc();
                self.differences.fetch_add(1, Relaxed);
                self.add_difference(if is_shadow {
                    difference
                } else {
                    // The canary's answer came first, so that the two are swapped.
                    Difference {
                        serving: difference.candidate,
                        candidate: difference.serving,
                        ..difference
                    }
                });
            }
            Err(error) if is_shadow => {
                self.metrics.failed.inc();
                self.failures.fetch_add(1, Relaxed);
                self.add_difference(Difference {
                    question: String::new(),
                    serving: "an answer".to_owned(),
                    candidate: error.to_string(),
                });
                self.compared.fetch_add(1, Relaxed);
                return;
            }
            // The call failed on the serving version, so that there is no answer to compare the
            // canary's with.
            Err(_) => return self.count_dropped(),
        }
        if is_shadow {
            self.count_answer();
        }
        self.compared.fetch_add(1, Relaxed);
    }

    fn faults(&self) -> u64 {
        match &self.terms.plan {
            Plan::Shadow(_) => self.failures.load(Relaxed),
            Plan::Canary(_) => self.context.health.faults(),
        }
    }

    /// Histograms of the candidate and the serving version since the start. The longest calls of a
    /// canary are left out, one for each instance: the first call of an instance may load agents or
    /// open a query, while the serving version's instances have done so before.
    fn histograms(&self) -> (TimeCounts, TimeCounts) {
        let (candidate, serving) = &self.histograms_at_start;
        let first_calls = match (&self.terms.plan, self.context.limits.instances) {
            (Plan::Canary(_), Instances::Kept(count)) => count as u64,
            _ => 0,
        };
        let candidate = self.context.metrics.duration().counts().since(candidate);
        (
            candidate.without_longest(first_calls),
            self.serving.duration().counts().since(serving),
        )
    }

    fn latency(&self) -> Option<Latency> {
        let (candidate, serving) = self.histograms();
        let min_calls = self.terms.plan.min_calls();
        if candidate.total() < min_calls || serving.total() < min_calls {
            return None;
        }
        Some(Latency {
            candidate: candidate.at(990)?,
            serving: serving.at(990)?,
        })
    }

    fn evidence(&self) -> Evidence {
        // The counters are updated one after the other; a difference is never more than one of the
        // compared answers.
        let compared = self.compared.load(Relaxed);
        Evidence {
            age: self.began.elapsed(),
            answered: self.answered.load(Relaxed),
            compared,
            differences: self.differences.load(Relaxed).min(compared),
            faults: self.faults(),
            latency: self.latency(),
        }
    }

    /// Returns the verdict and its reason, once there is one.
    fn verdict(&self) -> Option<(CandidateVerdict, String)> {
        let evidence = self.evidence();
        let Judgement { aborted, missing } = judge(&self.terms.plan, &evidence);
        if let Some(reason) = aborted {
            return Some((CandidateVerdict::Failed, reason));
        }
        if !self.terms.automatic || !missing.is_empty() {
            return None;
        }
        let Evidence {
            answered,
            compared,
            differences,
            faults,
            ..
        } = evidence;
        let reason = match &self.terms.plan {
            Plan::Shadow(_) => format!("{differences} of {compared} compared answers differ"),
            Plan::Canary(_) => format!(
                "it answered {answered} calls with {faults} faults; {differences} of {compared} compared answers differ"
            ),
        };
        Some((CandidateVerdict::Agreed, reason))
    }
}

/// A version that runs alongside the serving one. Dropping it ends the comparison.
pub(crate) struct Candidate<W: World> {
    pub(crate) version: Arc<Version<W>>,
    pub(crate) stats: Arc<CandidateStats>,
    queue: mpsc::Sender<Sample<W>>,
    calls: AtomicU64,
}

impl<W: World> Candidate<W> {
    /// Starts the comparison. A canary's calls are repeated on further instances of `serving`,
    /// which are left out of its metrics and health. `judgements` receives the verdict.
    pub(crate) fn start(
        runtime: &Runtime,
        version: Arc<Version<W>>,
        serving: &Version<W>,
        stats: Arc<CandidateStats>,
        judgements: mpsc::Sender<CandidateJudged>,
    ) -> Candidate<W> {
        let (queue, samples) = mpsc::channel(QUEUE_CAPACITY);
        let token = runtime.token.clone();
        let repeated_on = match &stats.terms.plan {
            Plan::Shadow(_) => Some(Arc::clone(&version)),
            Plan::Canary(plan) => (plan.compare_percent > 0).then(|| Arc::new(serving.detached())),
        };
        let work = compare_and_judge(repeated_on, Arc::clone(&stats), samples, judgements);
        runtime.tracker.spawn(async move {
            token.run_until_cancelled(work).await;
        });
        Candidate {
            version,
            stats,
            queue,
            calls: AtomicU64::new(0),
        }
    }

    pub(super) fn is_shadow(&self) -> bool {
        self.stats.terms.plan.kind() == RolloutKind::Shadow
    }

    /// Whether the version answers the calls with this key.
    pub(super) fn is_in_share(&self, key: impl FnOnce(&mut KeyHash)) -> bool {
        match &self.stats.terms.plan {
            Plan::Shadow(_) => false,
            Plan::Canary(plan) => {
                let mut hash = KeyHash::of(&self.version.context.name);
                key(&mut hash);
                hash.share() < plan.percent
            }
        }
    }

    /// Counts a call. Returns true for the planned share of a hundred calls, spread evenly.
    pub(crate) fn should_sample(&self) -> bool {
        let call = self.calls.fetch_add(1, Relaxed);
        is_sampled(call, self.stats.terms.plan.sample_percent())
    }

    /// Queues a sample, or drops it if the queue is full.
    pub(crate) fn submit(&self, sample: Sample<W>) {
        if self.queue.try_send(sample).is_err() {
            self.stats.count_dropped();
        }
    }
}

/// Compares samples and judges the candidate until the candidate is dropped.
async fn compare_and_judge<W: World>(
    repeated_on: Option<Arc<Version<W>>>,
    stats: Arc<CandidateStats>,
    mut samples: mpsc::Receiver<Sample<W>>,
    judgements: mpsc::Sender<CandidateJudged>,
) {
    let mut tick = tokio::time::interval(JUDGEMENT_INTERVAL.min(stats.terms.plan.min_duration()));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sent = false;
    loop {
        tokio::select! {
            sample = samples.recv() => match (sample, &repeated_on) {
                (Some(sample), Some(version)) => stats.record_comparison(sample(Arc::clone(version)).await),
                (Some(_), None) => stats.count_dropped(),
                (None, _) => return,
            },
            _ = tick.tick() => {
                // If the queue is full, the next tick sends the verdict again.
                if !sent && let Some((verdict, reason)) = stats.verdict() {
                    let event = CandidateJudged {
                        plugin: stats.context.name.clone(),
                        generation: stats.terms.generation,
                        verdict,
                        reason,
                    };
                    sent = judgements.try_send(event).is_ok();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
