//! The crate's metrics. Names begin with `transom_workflow_`.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::job_state::JobState;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

transom_common::metrics! {
    /// Counters; they continue from one term as leader to the next. Clones share them.
    pub(crate) struct Metrics {
        pub(crate) jobs_queued: Counter
            => "jobs_queued", "Jobs queued";
        pub(crate) jobs_pending: Gauge
            => "jobs_pending", "Jobs that are not launched";
        pub(crate) jobs_running: Gauge
            => "jobs_running", "Jobs launched and not completed";
        pub(crate) jobs_retained: Gauge
            => "jobs_retained", "Jobs that can be looked up";
        pub(crate) pending_seconds: Histogram = Histogram::new(exponential_buckets(0.005, 4.0, 10))
            => "job_pending_seconds", "Time from queueing a job to its launch";
        // Buckets up to about 19 hours.
        run_seconds: Histogram = Histogram::new(exponential_buckets(0.25, 4.0, 10))
            => "job_run_seconds", "Time from the launch of a job to its end, whatever its outcome";
        completed: Family<StateLabel, Counter>
            => "jobs_completed", "Jobs completed, by final state";
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self::registered(registry.sub_registry_with_prefix("transom_workflow"))
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
