//! The probes that this daemon makes of running tasks, with the check-probe components: checks,
//! health checks and readiness checks.
//!
//! [`Checker`] is the core's handle. It writes the wanted probes into one schedule (`wheel`), which
//! one task (`engine`) carries out; `times` computes the times of a probe, and `attempt` its
//! request. The core never waits for a probe. Results arrive as batches of [`Report`].
//!
//! # Guarantees
//!
//! * The configured numbers of concurrent attempts are never exceeded: one for checks, one for
//!   health and readiness checks. A probe whose attempt takes longer than its interval has no
//!   second attempt at the same time.
//! * The times of attempts are derived from the start and the id of the task: a new leader neither
//!   repeats a delay nor makes all probes at the same time. It makes health checks within five
//!   seconds, because it does not know the health of the tasks.
//! * A changed definition replaces only the probes that it changes.
//! * When a failed component is replaced, its probes are repeated immediately.
//!
//! There is no other implementation of a probe: without its component it has no result.

mod attempt;
mod engine;
mod metrics;
mod times;
mod wheel;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::agent::Agents;
use transom_common::ambient;
use transom_plugin_host::probe::{Failure, Outcome};

use crate::ids::InstanceId;
use crate::policies::Policies;
use engine::Engine;
use wheel::{ProbeToSchedule, Wheel};

pub(crate) use attempt::{Probe, Purpose};
pub(crate) use metrics::Metrics;
pub(crate) use times::Occasion;

/// Capacity of the queue of batches to the core.
pub(crate) const REPORT_QUEUE_CAPACITY: usize = 64;

/// The maximum numbers of concurrent attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Of checks.
    pub(crate) checks: usize,
    /// Of health and readiness checks.
    pub(crate) health: usize,
}

/// The result of one attempt.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) probe: Arc<Probe>,
    pub(crate) result: AttemptResult,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum AttemptResult {
    /// It has this result, or it could not be made or had no result.
    Ended(Result<Outcome, Failure>),
    /// The plugin that failed was replaced, and the failure of the earlier version does not apply
    /// to the new one.
    Obsolete,
}

/// The schedule, shared by the core and the task that carries it out.
#[derive(Debug)]
struct Schedule {
    wheel: Mutex<Wheel<Arc<Probe>>>,
    changed: Notify,
    /// The zero of the schedule's clock.
    zero: Instant,
}

impl Schedule {
    /// Milliseconds since the zero.
    fn now(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn at(&self, millis: u64) -> Instant {
        // Later than any interval. It replaces an instant that cannot be represented.
        let far = Duration::from_hours(24);
        self.zero
            .checked_add(Duration::from_millis(millis))
            .unwrap_or_else(|| Instant::now() + far)
    }

    fn lock(&self) -> MutexGuard<'_, Wheel<Arc<Probe>>> {
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The core's handle to the probes of running tasks.
#[derive(Debug)]
pub(crate) struct Checker {
    schedule: Arc<Schedule>,
}

impl Checker {
    /// Starts with no probes. `agents` run `exec` checks. All probes end with `token`.
    pub(crate) fn start(
        policies: Arc<dyn Policies>,
        agents: Option<Agents>,
        limits: Limits,
        reports: mpsc::Sender<Vec<Report>>,
        metrics: Metrics,
        tracker: &TaskTracker,
        token: CancellationToken,
    ) -> Self {
        let schedule = Arc::new(Schedule {
            wheel: Mutex::new(Wheel::new(limits.checks, limits.health)),
            changed: Notify::new(),
            zero: Instant::now(),
        });
        let engine = Engine::new(Arc::clone(&schedule), policies, agents, reports, metrics);
        tracker.spawn(engine.run(token));
        Self { schedule }
    }

    /// Sets the probes of an instance. Unchanged probes continue.
    pub(crate) fn set(&self, instance: &InstanceId, probes: Vec<Probe>, occasion: Occasion) {
        let now = self.schedule.now();
        let to_schedule = probes.into_iter().filter_map(|probe| {
            let running = probe.record.started_at.map_or(0, |started_at| {
                let running = ambient::now().duration_since(started_at).as_millis();
                i64::try_from(running).unwrap_or(i64::MAX)
            });
            let start = i64::try_from(now)
                .unwrap_or(i64::MAX)
                .saturating_sub(running.max(0));
            Some(ProbeToSchedule {
                times: probe.times(start, now)?,
                lane: probe.lane(),
                subject: Arc::new(probe),
            })
        });
        let to_schedule: Vec<_> = to_schedule.collect();
        self.schedule.lock().set(instance, to_schedule, occasion, now);
        self.schedule.changed.notify_one();
    }

    /// Stops the probes of an instance.
    pub(crate) fn end(&self, instance: &InstanceId) {
        self.set(instance, Vec::new(), Occasion::TaskRuns);
    }
}

#[cfg(test)]
mod tests;
