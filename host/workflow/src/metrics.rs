//! The crate's metrics. Names begin with `transom_workflow_`.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use transom_common::Described;

use crate::job_state::JobState;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// Counters; they continue from one term as leader to the next. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) jobs_queued: Counter,
    pub(crate) jobs_pending: Gauge,
    pub(crate) jobs_running: Gauge,
    pub(crate) jobs_retained: Gauge,
    /// Time from queueing to launch.
    pub(crate) pending_seconds: Histogram,
    /// Time from launch to the end.
    run_seconds: Histogram,
    completed: Family<StateLabel, Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            jobs_queued: Counter::default(),
            jobs_pending: Gauge::default(),
            jobs_running: Gauge::default(),
            jobs_retained: Gauge::default(),
            pending_seconds: Histogram::new(exponential_buckets(0.005, 4.0, 10)),
            // Buckets up to about 19 hours.
            run_seconds: Histogram::new(exponential_buckets(0.25, 4.0, 10)),
            completed: Family::default(),
        };
        let Self {
            jobs_queued,
            jobs_pending,
            jobs_running,
            jobs_retained,
            pending_seconds,
            run_seconds,
            completed,
        } = metrics.clone();
        let registry = registry.sub_registry_with_prefix("transom_workflow");
        registry.register("jobs_queued", "Jobs queued", jobs_queued);
        registry.register("jobs_pending", "Jobs that are not launched", jobs_pending);
        registry.register("jobs_running", "Jobs launched and not completed", jobs_running);
        registry.register("jobs_retained", "Jobs that can be looked up", jobs_retained);
        registry.register(
            "job_pending_seconds",
            "Time from queueing a job to its launch",
            pending_seconds,
        );
        registry.register(
            "job_run_seconds",
            "Time from the launch of a job to its end, whatever its outcome",
            run_seconds,
        );
        registry.register(
            "jobs_completed",
            "Jobs completed, by final state",
            Described(completed),
        );
        metrics
    }

    /// Counts a job that has ended. `ran`: the time since its launch, if it was launched.
    pub(crate) fn completed(&self, state: JobState, ran: Option<Duration>) {
        if let Some(ran) = ran {
            self.run_seconds.observe(ran.as_secs_f64());
        }
        let label = StateLabel {
            state: state.as_str(),
        };
        self.completed.get_or_create(&label).inc();
    }

    /// Jobs that ended in this state since the daemon started.
    pub(crate) fn ended(&self, state: JobState) -> u64 {
        let label = StateLabel {
            state: state.as_str(),
        };
        self.completed.get(&label).map_or(0, |count| count.get())
    }

    /// Resets the gauges when this daemon no longer leads, because it then has no pending or
    /// running jobs.
    pub(crate) fn step_down(&self) {
        self.jobs_pending.set(0);
        self.jobs_running.set(0);
    }
}
